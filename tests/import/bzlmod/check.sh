#!/usr/bin/env bash
# A MODULE.bazel: the registry's names for Abseil and GoogleTest, the module extension for what no registry has.
set -euo pipefail
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"

build_all
tests_pass
two_ranks_save @cohort//tools/launch

# What editors read, where a repository's folder is not called what its label says.
bazel run @cohort//tools/compile_commands >"$scratch/log" 2>&1 || die "compile_commands.json is not written: $(cat "$scratch/log")"
mv compile_commands.json "$scratch"
[[ $(grep '"file":' "$scratch/compile_commands.json") == *'"app/save.cc"'* ]] || die "compile_commands.json lacks app/save.cc."
includes=$(sed -n 's/.*"-I\(.*\/_virtual_includes\/main_only_saver\)".*/\1/p' "$scratch/compile_commands.json" | sort -u)
[[ $includes/cohort/checkpoint/main_only_saver.h -ef $checkout/checkpoint/main_only_saver.h ]] ||
  die "compile_commands.json leads to $includes, which does not lead to the header that a person edits."
say "compile_commands.json leads to the sources"

fetched_only gloo libtorch
