#!/usr/bin/env bash
# bazelw on machines that are made of stubs: which Bazel it takes, and what it says when it cannot.
# shellcheck disable=SC2016 # for the shells that bazelw starts
set -uo pipefail
# shellcheck source=tools/bazel/fake_machine.sh
source "${BASH_SOURCE[0]%/*}/fake_machine.sh"

fake_bazel() { # NAME ANSWER
  stub "$1" <<<"[[ \$1 == --version ]] && echo '$2' && exit; printf '<%s>' \"\$@\"; exit 3"
}

test_bazel_7_7_and_later_7_run_with_all_arguments() {
  local version
  for version in 7.7.0 7.7.1 7.9.2 7.10.0; do
    fake_bazel bazel "bazel $version"
    bazelw build --a='b c' '' -- //x
    expect_status 3
    expect_said '<build><--a=b c><><--><//x>'
  done
}

test_other_versions_are_refused_by_name() {
  local version
  for version in 4.2.3 6.5.0 7.6.2 8.0.0 8.0.0rc1 10.7.0 no_version; do
    fake_bazel bazel "bazel $version"
    bazelw build
    expect_status 36
    expect_said "cohort needs 7.7 or a later 7."
    expect_said "$world/bin/bazel is Bazel $version."
    expect_said "put bazelisk on PATH"
  done
}

test_bazelisk_comes_before_bazel() {
  fake_bazel bazel "bazel 8.1.0"
  fake_bazel bazelisk $'Bazelisk version: 1.2\nbazel 7.7.1'
  bazelw info
  expect_status 3
  expect_said '<info>'
}

test_a_bazelisk_that_cannot_fetch_is_named_with_its_reason() {
  stub bazelisk <<<'echo "could not download Bazel: no route" >&2; exit 1'
  bazelw info
  expect_status 36
  expect_said "$world/bin/bazelisk does not answer --version: could not download Bazel: no route."
}

test_COHORT_BAZEL_names_one() {
  fake_bazel bazel "bazel 8.1.0"
  fake_bazel mine "bazel 7.7.1"
  COHORT_BAZEL=$world/bin/mine bazelw info
  expect_status 3
  fake_bazel mine "bazel 6.0.0"
  COHORT_BAZEL=$world/bin/mine bazelw info
  expect_status 36
  expect_said "COHORT_BAZEL: $world/bin/mine is Bazel 6.0.0."
  COHORT_BAZEL=/no/such bazelw info
  expect_status 36
  expect_said "COHORT_BAZEL=/no/such is not a program."
}

test_COHORT_BAZEL_provision_makes_one_beside_an_unusable_one() {
  fake_bazel bazel "bazel 8.1.0"
  COHORT_BAZEL=provision bazelw info
  expect_status 5
  expect_not_in env COHORT_BAZEL
}

test_exec_runs_directly_where_bazel_is_the_machines_own() {
  fake_bazel bazel "bazel 7.7.1"
  bazelw exec bash -c 'echo "$1"; exit 9' x 'a b'
  expect_status 9
  expect_said 'a b'
  bazelw exec
  expect_status 36
  expect_said 'exec: which command?'
}

test_CDPATH_leads_to_no_other_checkout() {
  mkdir -p "$world/other/checkout/tools/bazel"
  fake_bazel bazel "bazel 7.7.1"
  (cd "$world" && CDPATH=$world/other PATH=$world/bin checkout/bazelw info) >"$world/said" 2>&1
  status=$?
  expect_status 3
  expect_said '<info>'
}

test_help_needs_nothing() {
  FAKE_SYSTEM=Darwin bazelw help-bazelw
  expect_status 0
  expect_said COHORT_DISTDIR
}

test_another_system_gets_one_line() {
  FAKE_SYSTEM=Darwin FAKE_CPU=arm64 bazelw info
  expect_status 36
  expect_said "bazelw can make a Bazel only on Linux x86-64; this is Darwin arm64."
  FAKE_CPU=aarch64 bazelw info
  expect_said "this is Linux aarch64."
  [[ $(wc -l <"$world/said") == 1 ]] || fail "more than one line"
}

test_no_apt() {
  rm "$world/bin/apt-get"
  bazelw info
  expect_status 36
  expect_said "no apt from whose mirror one could be made. Or install bazelisk"
}

test_root_gets_missing_tools_installed() {
  mv "$world/bin/mmdebstrap" "$world/mmdebstrap"
  bazelw info
  expect_in calls "apt-get install --yes --no-install-recommends mmdebstrap"
}

test_an_installation_that_fails_is_quoted() {
  rm "$world/bin/mmdebstrap"
  stub apt-get <<<'echo "E: Unable to locate package mmdebstrap"; exit 100'
  bazelw info
  expect_status 36
  expect_said "apt-get could not install mmdebstrap"
  expect_said "E: Unable to locate package mmdebstrap"
  expect_nothing_made
}

test_another_user_is_told_what_to_install() {
  rm "$world"/bin/{mmdebstrap,bwrap}
  FAKE_UID=1000 bazelw info
  expect_status 36
  expect_said "As root, once: apt-get install mmdebstrap bubblewrap uidmap"
  expect_calls 0 "apt-get"
}

test_no_user_namespaces() {
  FAKE_NO_NAMESPACES=1 bazelw info
  expect_status 36
  expect_said "bubblewrap cannot make a namespace here: bwrap: no permission"
  expect_said "sysctl kernel.unprivileged_userns_clone=1"
  expect_nothing_made
}

test_a_user_without_subordinate_ids() {
  stub newuidmap <<<''
  FAKE_UID=54321 bazelw info
  expect_status 36
  expect_said "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 fakeuser"
}

test_no_mirror() {
  printf 'deb [arch=amd64] http://other.test/x/ stable main\n' >"$world/etc/apt/sources.list"
  FAKE_UNREACHABLE=1 bazelw info
  expect_status 36
  expect_said "no mirror of Debian forky can be reached:"
  expect_said "http://mirror.test/debian: E: cannot connect"
  expect_said "http://other.test/x: E: cannot connect"
  expect_said "COHORT_MIRROR=ADDRESS"
  expect_nothing_made
}

test_no_apt_sources() {
  rm "$world/etc/apt/sources.list.d/debian.sources"
  bazelw info
  expect_status 36
  expect_said "there is no 'deb' line and no 'URIs:'"
}

test_COHORT_MIRROR_is_asked_instead() {
  FAKE_UNREACHABLE=1 COHORT_MIRROR=http://mine.test/d bazelw info
  expect_said "http://mine.test/d: E: cannot connect"
  ! grep -q mirror.test "$world/said" || fail "asked the machine's own mirror"
}

run_tests
