#!/usr/bin/env bash
# A machine that reaches only a Debian mirror has every archive of third_party/repositories.bzl: in sources.txt with the same
# hash and module, or as a rule set that comes with the root.
set -uo pipefail
readonly here=$TEST_SRCDIR/$TEST_WORKSPACE
failures=0
rows=0

# The table as lines: name, sha256, base name of the address, repack's name or -, repack's sha256 or -, module or -.
entries() {
  awk '
    function value(line) { sub(/^[^"]*"/, "", line); sub(/".*/, "", line); return line == "" ? "-" : line }
    /^    "[^"]*": struct\(/ { name = value($0); sum = url = repacked = repacked_sum = module = "-" }
    /^        module = / { module = value($0) }
    /^        sha256 = / { sum = value($0) }
    /^        url = / { url = value($0); sub(/.*\//, "", url) }
    /^        repacked = / { repacked = value($0) }
    /^        repacked_sha256 = / { repacked_sum = value($0) }
    /^    \),/ && name != "" { if (url != "-") print name, sum, url, repacked, repacked_sum, module; name = "" }
  ' "$here/third_party/repositories.bzl"
}

while read -r name sum url repacked repacked_sum module; do
  rows=$((rows + 1))
  if grep -qF "override_repository=$name=" "$here/tools/bazel/root.bazelrc"; then
    continue
  fi
  wanted="$sum $url $module"
  [[ $repacked == - ]] || wanted="$repacked_sum $repacked $module"
  if ! awk '{ print $3, $4, $5 }' "$here/tools/bazel/sources.txt" | grep -qxF "$wanted"; then
    printf 'repositories.bzl has %s as "%s": no row of tools/bazel/sources.txt has that hash, name and module\n' "$name" "$wanted"
    failures=$((failures + 1))
  fi
done < <(entries)

supplied=$(grep -cvE '^(#|$)' "$here/tools/bazel/sources.txt")
overridden=$(entries | while read -r name _; do grep -F "override_repository=$name=" "$here/tools/bazel/root.bazelrc"; done | wc -l)
if ((rows == 0 || rows != supplied + overridden)); then
  printf '%s entries with an address, but %s rows in sources.txt and %s rule sets\n' "$rows" "$supplied" "$overridden"
  failures=$((failures + 1))
fi
((failures == 0))
