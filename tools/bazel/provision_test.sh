#!/usr/bin/env bash
# Provisioning by bazelw, on a machine that is made of stubs: what is made and entered, and that nothing half-made stays.
set -uo pipefail
# shellcheck source=tools/bazel/fake_machine.sh
source "${BASH_SOURCE[0]%/*}/fake_machine.sh"

# start NUMBER: a call in the background that mmdebstrap keeps waiting until $world/go exists; sets $pid, says into $world/said.NUMBER.
start() {
  HOME=$world/home PATH=$world/bin FAKE_MMDEBSTRAP=wait "$world/checkout/bazelw" info >"$world/said.$1" 2>&1 </dev/null &
  pid=$!
}

wait_until() { # CONDITION...: by evidence, with a limit only for a broken test
  local tries
  for ((tries = 0; tries < 600; ++tries)); do
    "$@" && return
    sleep 0.1
  done
  fail "never: $*"
}
is_gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status"; }

test_makes_a_root_once_and_then_asks_nobody() {
  bazelw info --x
  expect_status 5
  expect_calls 1 mmdebstrap
  expect_calls 3 "apt-get source"
  expect_in entered "/usr/bin/setpriv --pdeathsig TERM bazel info --x"
  [[ $(cat "$world/home/.cache/cohort/distdir/v1.tar.gz") == "content of alpha_1.orig.tar.gz" ]] || fail "no archive"
  : >"$world/calls"
  bazelw info
  expect_status 5
  expect_calls 0 ""
  [[ ! -s $world/said ]] || fail "said something"
}

test_bazel_finds_archives_and_rule_sets_through_its_system_settings() {
  bazelw info
  expect_in bazelrc "startup --install_base=/usr/share/bazel"
  expect_not_in bazelrc sandbox_debug
  expect_in bazelrc "common --override_repository=rules_cc=/usr/share/bazel/rules/cc"
  expect_in bazelrc "common --distdir=$world/home/.cache/cohort/distdir"
  expect_in bazelrc "common --repo_env=COHORT_SOURCES=$world/home/.cache/cohort/distdir"
}

# The folder that Bazel is told to take module NAME from.
module() { sed -n "s/^common --override_module=$1=//p" "$world/bazelrc"; }

test_bazel_finds_modules_without_a_registry() {
  bazelw info
  expect_status 5
  grep -qxF 'module(name = "omega_module")' "$(module omega_module)/MODULE.bazel" || fail "no module of an archive"
  ! grep parse_headers "$(module omega_module)/BUILD.bazel" || fail "each header is compiled alone"
  grep -qxF 'module(name = "zlib")' "$(module zlib)/MODULE.bazel" || fail "no empty module"
  [[ -f $(module zlib)/BUILD.bazel ]] || fail "not a package"
  local name
  for name in omega_module zlib; do
    grep -qxF "bazel_dep(name = \"$name\")" "$(module buildozer)/MODULE.bazel" || fail "Bazel would refuse the setting for $name"
  done
}

test_a_table_that_changes_makes_modules_anew_beside_the_old_ones() {
  local old
  bazelw info
  old=$(module omega_module)
  echo '# Another revision.' >>"$world/checkout/tools/bazel/sources.txt"
  : >"$world/calls"
  bazelw info
  expect_status 5
  expect_calls 0 ""
  [[ -d $old && -d $(module omega_module) && $old != "$(module omega_module)" ]] || fail "from $old to $(module omega_module)"
}

test_modules_that_cannot_be_made_are_one_message_and_nothing_half_made() {
  bazelw info
  echo '# Another revision.' >>"$world/checkout/tools/bazel/sources.txt"
  printf 'no archive' >"$world/home/.cache/cohort/distdir/omega-1.tar.gz"
  bazelw info
  expect_status 36
  expect_said "cannot make modules of the archives in $world/home/.cache/cohort/distdir"
  [[ $(compgen -G "$world/home/.cache/cohort/modules-*" | wc -l) == 1 ]] || fail "half-made modules"
  ! compgen -G "$world/home/.cache/cohort/provisioning.*" >/dev/null || fail "left"
}

test_what_abseil_asks_for_is_added_to_the_roots_rules() {
  bazelw info
  grep -qF 'name = "emscripten"' "$world"/home/.cache/cohort/root-*/usr/share/bazel/rules/cc/cc/compiler/BUILD || fail "not added"
}

test_COHORT_ROOT_PACKAGES_make_a_root_of_their_own() {
  local plain both
  bazelw info
  plain=$(grep -- --output_user_root "$world/bazelrc")
  COHORT_ROOT_PACKAGES=' lld  clang ' bazelw info
  expect_status 5
  expect_calls 2 mmdebstrap
  expect_in calls "python3-pip,clang,lld "
  both=$(grep -- --output_user_root "$world/bazelrc")
  [[ $plain != "$both" ]] || fail "both roots build into $both"
  COHORT_ROOT_PACKAGES='clang lld clang' bazelw info
  expect_calls 2 mmdebstrap
  expect_in bazelrc "$both"
  bazelw info
  expect_calls 2 mmdebstrap
  expect_in bazelrc "$plain"
}

test_a_wrong_name_in_COHORT_ROOT_PACKAGES_is_named() {
  local name
  for name in clang,lld Clang --help 'a/../b' .x "*"; do
    COHORT_ROOT_PACKAGES="lld $name" bazelw info
    expect_status 36
    expect_said "COHORT_ROOT_PACKAGES: '$name' is not the name of a Debian package."
  done
  COHORT_ROOT_PACKAGES="clang nowhere nowhere2" bazelw info
  expect_status 36
  expect_said "COHORT_ROOT_PACKAGES: http://mirror.test/debian (forky, main) has no package nowhere nowhere2."
  expect_calls 0 mmdebstrap
  expect_nothing_made
}

test_the_environment_is_that_of_the_root_and_what_was_named() {
  RANK=1 PET_NNODES=2 NCCL_DEBUG=INFO PIP_INDEX_URL=u LD_LIBRARY_PATH=/x SECRET=s MINE=m COHORT_PASS_ENV=OTHER,MINE TEST_X=1 bazelw info
  local name
  for name in RANK=1 PET_NNODES=2 NCCL_DEBUG=INFO PIP_INDEX_URL=u MINE=m "HOME=$world/home" PATH=/usr/sbin:/usr/bin:/sbin:/bin; do
    expect_in env "$name"
  done
  for name in LD_LIBRARY_PATH SECRET TEST_X=; do expect_not_in env "$name"; done
  TEST_X=1 bazelw exec true
  expect_in env TEST_X=1
  expect_in entered "--pdeathsig TERM true"
}

test_what_a_person_works_on_is_shown() {
  mkdir "$world/a b"
  (cd "$world/a b" && COHORT_BIND=/usr/lib bazelw info)
  expect_in entered "--ro-bind $world/home/.cache/cohort/root-"
  local top=${world#/}
  expect_in entered "--bind /${top%%/*} /${top%%/*}"
  expect_in entered "--bind /usr/lib /usr/lib"
  expect_in entered "--chdir $world/a b"
  (cd /var/lib && bazelw info)
  expect_in entered "--bind /var/lib /var/lib"
  COHORT_ROOT_WRITABLE=1 bazelw info
  expect_in entered "--bind $world/home/.cache/cohort/root-"
  COHORT_BIND=/no/such bazelw info
  expect_status 36
  expect_said "COHORT_BIND: /no/such does not exist"
  COHORT_BIND=/usr bazelw info
  expect_status 36
  expect_said "COHORT_BIND: /usr would hide the root's own"
}

test_a_current_directory_that_cannot_be_shown_is_named() {
  cd /usr/bin || fail "no /usr/bin"
  bazelw info
  cd "$world" || fail "no $world"
  expect_status 36
  expect_said "the current directory /usr/bin lies in this machine's system"
}

test_paths_with_spaces_are_one_path() {
  local certificates
  certificates=$(mktemp -d /dev/shm/bazelw_test.XXXXXX)
  : >"$certificates/our own.pem"
  mkdir "$certificates/one" "$certificates/two"
  XDG_CACHE_HOME="$world/a b" PIP_CERT="$certificates/our own.pem" PIP_FIND_LINKS="$certificates/one $certificates/two" bazelw info
  expect_status 5
  expect_in entered "--ro-bind $certificates/our own.pem $certificates/our own.pem"
  expect_in entered "--ro-bind $certificates/one $certificates/one --ro-bind $certificates/two $certificates/two"
  expect_in bazelrc "startup --output_user_root=$world/a\\ b/cohort/output-"
  expect_in bazelrc "common --distdir=$world/a\\ b/cohort/distdir"
  expect_in bazelrc "common --repo_env=COHORT_SOURCES=$world/a\\ b/cohort/distdir"
  expect_in bazelrc "common --override_module=zlib=$world/a\\ b/cohort/modules-"
  rm -r "$certificates"
}

test_a_mirror_that_differs_is_one_message_before_the_download() {
  sed -i 's/alpha_1/alpha_7/' "$world/mirror/alpha.showsrc"
  : >"$world/mirror/beta.showsrc"
  FAKE_BAZEL=8.1.0 bazelw info
  expect_status 36
  expect_said "http://mirror.test/debian (forky) does not offer what is pinned:"
  expect_said "bazel-bootstrap: wanted 7.7 or a later 7, found 8.1.0+ds-8"
  expect_said "alpha: wanted alpha_1.orig.tar.gz (sha256 $(sha256sum "$world/mirror/alpha_1.orig.tar.gz" | cut -d' ' -f1)) as v1.tar.gz, found alpha_7.orig.tar.gz (sha256"
  expect_said "beta: wanted beta_2.orig.tar.xz"
  expect_said "found none"
  expect_said "COHORT_DISTDIR=FOLDER ./bazelw"
  expect_calls 0 mmdebstrap
  expect_nothing_made
}

test_COHORT_DISTDIR_supplies_what_the_mirror_lacks() {
  : >"$world/mirror/alpha.showsrc"
  mkdir "$world/mine"
  printf 'something else' >"$world/mine/v1.tar.gz"
  COHORT_DISTDIR=$world/mine bazelw info
  expect_status 36
  expect_said "$world/mine/v1.tar.gz is not the archive that is pinned: wanted sha256"
  expect_nothing_made
  cp "$world/mirror/alpha_1.orig.tar.gz" "$world/mine/v1.tar.gz"
  COHORT_DISTDIR=$world/mine bazelw info
  expect_status 5
  expect_calls 2 "apt-get source"
  COHORT_DISTDIR=/no/such bazelw info
  expect_status 5
}

test_an_archive_that_the_mirror_does_not_deliver_is_named() {
  FAKE_HOLE=beta bazelw info
  expect_status 36
  expect_said "http://mirror.test/debian does not deliver what it offers:"
  expect_said "beta_2.orig.tar.xz (beta_2.orig.tar.xz, sha256"
  expect_said "404 Not Found"
  expect_calls 0 mmdebstrap
}

test_an_archive_with_other_bytes_is_not_taken() {
  printf 'tampered' >"$world/mirror/alpha_1.orig.tar.gz"
  bazelw info
  expect_status 36
  expect_said "does not deliver what it offers:"
  [[ ! -e $world/home/.cache/cohort/distdir/v1.tar.gz ]] || fail "taken"
}

test_a_table_that_grows_fetches_only_what_is_new() {
  bazelw info
  offer gamma gamma_3.orig.tar.gz gamma-3.tar.gz
  : >"$world/calls"
  bazelw info
  expect_status 5
  expect_said "this revision pins archives that are not in"
  expect_calls 1 "apt-get source"
  expect_calls 0 mmdebstrap
}

test_too_little_space_is_said_before_anything_is_made() {
  FAKE_FREE=2999 bazelw info
  expect_status 36
  expect_said "not enough space in $world/home/.cache/cohort: 3000 MB needed, 2999 MB available."
  FAKE_FREE=4999 COHORT_ROOT_PACKAGES=clang bazelw info
  expect_status 36
  expect_said "not enough space in $world/home/.cache/cohort: 5000 MB needed, 4999 MB available."
  expect_calls 0 ""
  expect_nothing_made
}

test_a_disk_that_fills_up_in_the_middle() {
  FAKE_MMDEBSTRAP=full bazelw info
  expect_status 36
  expect_said "the disk is full: making the root in $world/home/.cache/cohort needs 3000 MB."
  expect_nothing_made
}

test_a_failing_mmdebstrap_is_quoted() {
  FAKE_MMDEBSTRAP=broken bazelw info
  expect_status 36
  expect_said "E: a maintainer script failed"
  expect_said "mmdebstrap could not make the root."
  expect_in home/.cache/cohort/failed.log "E: a maintainer script failed"
  expect_nothing_made
}

test_a_root_whose_bazel_does_not_work_is_not_kept() {
  FAKE_ROOT_BAZEL=8.0.0 bazelw info
  expect_status 36
  expect_said "the new root's Bazel does not work: bazel 8.0.0"
  expect_nothing_made
}

test_the_second_of_two_calls_waits_for_the_first() {
  local first second
  start 1
  first=$pid
  wait_until test -s "$world/waiting"
  start 2
  second=$pid
  wait_until grep -qs "another bazelw (pid $first) is provisioning" "$world/said.2"
  touch "$world/go"
  wait "$first"
  [[ $? == 5 ]] || fail "the first failed: $(cat "$world/said.1")"
  wait "$second"
  [[ $? == 5 ]] || fail "the second failed: $(cat "$world/said.2")"
  expect_calls 1 mmdebstrap
}

test_what_a_killed_call_left_is_ended_and_removed() {
  local orphan
  start 1
  wait_until test -s "$world/waiting"
  orphan=$(cat "$world/waiting")
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null
  is_gone "$orphan" && fail "the orphan is gone already: this test shows nothing"
  compgen -G "$world/home/.cache/cohort/provisioning.*" >/dev/null || fail "nothing is left: this test shows nothing"
  bazelw info
  expect_status 5
  expect_said "removing what a call that was killed left"
  wait_until is_gone "$orphan"
  ! compgen -G "$world/home/.cache/cohort/provisioning.*" >/dev/null || fail "not removed"
}

test_a_call_that_is_terminated_cleans_up_itself() {
  local orphan
  start 1
  wait_until test -s "$world/waiting"
  orphan=$(cat "$world/waiting")
  kill -TERM "$pid"
  wait "$pid"
  [[ $? == 143 ]] || fail "not 143"
  wait_until is_gone "$orphan"
  expect_nothing_made
  expect_in said.1 "stopped; removing what is half-made."
}

run_tests
