"""Makes a CSV with a header of the file in which scikit-learn keeps the digits.

usage: make_digits_csv.py DIGITS.csv.gz OUTPUT.csv

The input has no header, and writes whole numbers as 0.000000000000000000e+00. The names of the points are those of
sklearn.datasets.load_digits: pixel_ROW_COLUMN.
"""

import gzip
import sys

FEATURES = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
TARGET = "digit"
ROWS = 1797


def number(field, most):
    value = float(field)
    if not (0 <= value <= most and value.is_integer()):
        raise ValueError(f"{field} is no whole number from 0 to {most}")
    return str(int(value))


def rows(path):
    with gzip.open(path, "rt", encoding="ascii") as lines:
        for line in lines:
            *points, digit = line.strip().split(",")
            if len(points) != len(FEATURES):
                raise ValueError(f"a row of {len(points)} points")
            yield [number(point, 16) for point in points] + [number(digit, 9)]


def main():
    source, output = sys.argv[1:]
    try:
        table = list(rows(source))
    except ValueError as error:
        sys.exit(f"{source}: {error}")
    if len(table) != ROWS:
        sys.exit(f"{source}: expected {ROWS} rows, there are {len(table)}")
    with open(output, "w", encoding="ascii", newline="\n") as csv:
        print(*FEATURES, TARGET, sep=",", file=csv)
        for row in table:
            print(*row, sep=",", file=csv)


if __name__ == "__main__":
    main()
