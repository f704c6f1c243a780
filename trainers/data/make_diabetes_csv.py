"""Makes one CSV with a header of the two files in which scikit-learn keeps the diabetes data set.

usage: make_diabetes_csv.py MEASUREMENTS.csv.gz TARGET.csv.gz OUTPUT.csv

The inputs are blank-separated and have no header. The names are those of sklearn.datasets.load_diabetes.
"""

import gzip
import sys

FEATURES = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"]
TARGET = "progression"
ROWS = 442


def rows(path, width):
    with gzip.open(path, "rt", encoding="ascii") as lines:
        table = [[f"{float(field):.12g}" for field in line.split()] for line in lines]
    if len(table) != ROWS or any(len(row) != width for row in table):
        sys.exit(f"{path}: expected {ROWS} rows of {width} numbers")
    return table


def main():
    measurements, target, output = sys.argv[1:]
    with open(output, "w", encoding="ascii", newline="\n") as csv:
        print(*FEATURES, TARGET, sep=",", file=csv)
        for left, right in zip(rows(measurements, len(FEATURES)), rows(target, 1)):
            print(*left, *right, sep=",", file=csv)


if __name__ == "__main__":
    main()
