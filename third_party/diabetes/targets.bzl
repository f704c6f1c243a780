"""The files of @diabetes: out of scikit-learn's wheel, the diabetes data set (442 patients, 10 measurements, one target) and the
digits (1797 images of 8x8 points, 10 classes)."""

def diabetes_targets():
    native.exports_files(
        [
            "tree/sklearn/datasets/data/diabetes_data_raw.csv.gz",
            "tree/sklearn/datasets/data/diabetes_target.csv.gz",
            "tree/sklearn/datasets/data/digits.csv.gz",
        ],
        visibility = [str(Label("//trainers/data:__pkg__"))],
    )
