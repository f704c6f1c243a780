"""The files of @diabetes: the data set (442 patients, 10 measurements, one target), out of scikit-learn's wheel."""

def diabetes_targets():
    native.exports_files(
        [
            "tree/sklearn/datasets/data/diabetes_data_raw.csv.gz",
            "tree/sklearn/datasets/data/diabetes_target.csv.gz",
        ],
        visibility = [str(Label("//trainers/data:__pkg__"))],
    )
