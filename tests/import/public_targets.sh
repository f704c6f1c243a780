# shellcheck shell=bash
# What docs/importing.md promises against what Bazel lets this consumer use, line by line. Source checks.sh first.
# shellcheck disable=SC2154 # $scratch and $checkout are of checks.sh

# documented DOCUMENT: the labels that begin a line of a table, written out (`@cohort//runtime` is @cohort//runtime:runtime).
documented() {
  # shellcheck disable=SC2016 # the quotes are part of the pattern
  sed -n 's/^| `\(@cohort\/\/[^`]*\)` |.*/\1/p' "$1" | sed 's|^\([^:]*[/]\)\([^/:]*\)$|\1\2:\2|' | sort
}

# packages: cohort's, as the checkout has them. Not @cohort//..., which also walks into the links that Bazel leaves in a checkout in
# which it has run, and fails on the packages of Bazel's own there.
packages() {
  (cd "$checkout" && find . -name BUILD.bazel -not -path './bazel-*' -not -path './tests/import/*') |
    sed -e 's|^\./||' -e 's|/*BUILD\.bazel$||' -e 's|.*|@cohort//&:*|'
}

# visible_from TARGET: what the consumer's TARGET may depend on: rules, settings, and files that are exported.
visible_from() {
  bazel query "visible($1, kind('rule|source file', set($(packages | tr '\n' ' '))))" 2>"$scratch/query" ||
    { cat "$scratch/query" >&2 && return 1; }
}

# loadable: the .bzl files that a BUILD file of the consumer's may load. Each is loaded, for a symbol that it lacks: Bazel says so,
# unless it may not be loaded at all.
loadable() {
  local file label count=0
  while read -r file; do
    label=@cohort//$(dirname "$file"):$(basename "$file")
    mkdir -p "$scratch/probes/probe/$((++count))"
    echo "load('$label', 'no_such_symbol')" >"$scratch/probes/probe/$count/BUILD.bazel"
  done < <(cd "$checkout" && find . -name '*.bzl' -not -path './bazel-*' -not -path './tests/import/*' | sed 's|^\./||')
  ! bazel query --keep_going --package_path="%workspace%:$scratch/probes" //probe/... >"$scratch/query" 2>&1 ||
    { echo "symbols that do not exist were loaded" >&2 && return 1; }
  sed -n "s/^Error: file '\(@cohort[^']*\)' does not contain symbol 'no_such_symbol'.*/\1/p" "$scratch/query" | sort -u
}

# public_is_what_is_documented TARGET: and a difference is found, whichever way it goes.
public_is_what_is_documented() {
  # shellcheck disable=SC2016 # the quotes are part of the pattern
  local lists=$scratch/lists first
  mkdir -p "$lists"
  { visible_from "$1" && loadable; } >"$lists/unsorted" || die "cannot find out what is public."
  sort "$lists/unsorted" >"$lists/public"
  documented "$checkout/docs/importing.md" >"$lists/documented"
  diff "$lists/documented" "$lists/public" >"$lists/difference" ||
    die "docs/importing.md has lines for what is not public (<), or lacks lines for what is (>):
$(cat "$lists/difference")"

  first=$(head -n 1 "$lists/public")
  sed 1d "$lists/public" | differs_by "< $first" || die "a line too many in the document is not noticed."
  { cat "$lists/public" && echo @cohort//zzz:zzz; } | differs_by "> @cohort//zzz:zzz" || die "a line that is missing in the document is not noticed."
  say "$(wc -l <"$lists/public") targets and files are public, and all of them documented"
}

# differs_by LINE: whether that is how the document differs from the list on the standard input.
differs_by() { [[ $(diff "$scratch/lists/documented" - | grep '^[<>]') == "$1" ]]; }
