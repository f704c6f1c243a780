#!/usr/bin/env bash
# A MODULE.bazel: the registry's names for Abseil and GoogleTest, the module extension for what no registry has.
set -euo pipefail
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"

build_all
tests_pass
two_ranks_save @cohort//tools/launch
fetched_only gloo libtorch
