# shellcheck shell=bash
# Which Bazel of the machine's own may be used: 7.7 or a later 7.
#
# One that is found but cannot be used is an error and not a reason to make another: whoever has installed a Bazel
# wants to hear why it is not taken, rather than wait for a gigabyte that nobody asked for.

is_usable_version() { # VERSION
  [[ $1 =~ ^([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] == 7 && BASH_REMATCH[2] >= 7))
}

# judge PATH: 0 if usable; else 1, and the reason in $complaint.
judge() {
  local answer version
  complaint=
  if ! answer=$("$1" --version 2>&1 </dev/null); then
    complaint="$1 does not answer --version: $(tail -n 1 <<<"$answer")"
  else
    version=$(sed -n 's/^bazel \([^ ]*\).*/\1/p' <<<"$answer")
    is_usable_version "$version" || complaint="$1 is Bazel ${version:-without a version, it says: $answer}"
  fi
  [[ -z $complaint ]]
}

refuse() { # COMPLAINT...
  die "no usable Bazel: cohort needs 7.7 or a later 7." "$@" \
    "What to do, any one of:" \
    "  put bazelisk on PATH (it fetches the version that .bazelversion names);" \
    "  name another Bazel: COHORT_BAZEL=PATH ./bazelw ...;" \
    "  let bazelw make its own (Debian or a derivative): COHORT_BAZEL=provision ./bazelw ..."
}

# find_bazel: 0 with $bazel set; 1 if the machine has none (or its own is not wanted); ends with a message if it has only unusable ones.
find_bazel() {
  local name
  local -a complaints=()
  case ${COHORT_BAZEL-} in
    provision) return 1 ;;
    '') ;;
    *)
      bazel=$COHORT_BAZEL
      [[ -f $bazel && -x $bazel ]] || refuse "COHORT_BAZEL=$bazel is not a program."
      judge "$bazel" || refuse "COHORT_BAZEL: $complaint."
      return 0
      ;;
  esac
  for name in bazelisk bazel; do
    bazel=$(type -P "$name") || continue
    judge "$bazel" && return 0
    complaints+=("$complaint.")
  done
  ((${#complaints[@]} == 0)) || refuse "${complaints[@]}"
  return 1
}
