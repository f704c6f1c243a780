# shellcheck shell=bash
# shellcheck disable=SC2016 # the bodies of stubs expand later
# For tests of bazelw: a machine made of stubs. $world/bin is its whole PATH; FAKE_* variables say how it behaves.
# Every call of a stub that a test may want to count is a line in $world/calls.

world=$(mktemp -d "${TEST_TMPDIR:?}/world.XXXXXX")
readonly world
readonly real_tools=(awk bash cat chmod cp cut dirname env find flock getent grep gzip head ls mkdir mktemp mv paste rm sed
  sha256sum sleep sort tail tar touch tr)

stub() { # NAME, the body on stdin
  { printf '#!/bin/bash\nworld=%q\n' "$world" && cat; } >"$world/bin/$1"
  chmod +x "$world/bin/$1"
}

# A checkout with a table of three archives, one of them a module, and a machine like a Debian that can do everything, run by root.
make_machine() {
  local tool
  rm -rf "${world:?}"/*
  mkdir -p "$world"/{bin,home,mirror,etc/apt/sources.list.d,checkout/tools/bazel}
  cp "$TEST_SRCDIR/$TEST_WORKSPACE/bazelw" "$world/checkout/"
  cp "$TEST_SRCDIR/$TEST_WORKSPACE"/tools/bazel/*.{sh,txt,bazelrc} "$world/checkout/tools/bazel/"
  for tool in "${real_tools[@]}"; do ln -s "$(type -P "$tool")" "$world/bin/$tool"; done
  printf 'URIs: http://mirror.test/debian\n' >"$world/etc/apt/sources.list.d/debian.sources"
  : >"$world/calls"
  : >"$world/checkout/tools/bazel/sources.txt"
  offer alpha alpha_1.orig.tar.gz v1.tar.gz
  offer beta beta_2.orig.tar.xz beta_2.orig.tar.xz
  offer omega omega_1.orig.tar.gz omega-1.tar.gz omega_module
  stub_system
  stub_apt
  stub_root_tools
}

# offer PACKAGE FILE NAME [MODULE]: a row of the table, and the mirror has it. A module's archive is one.
offer() {
  local sum
  if (($# == 4)); then
    mkdir -p "$world/upstream/$1-1"
    printf 'module(name = "%s")\n' "$4" >"$world/upstream/$1-1/MODULE.bazel"
    printf 'features = [\n    "parse_headers",\n]\n' >"$world/upstream/$1-1/BUILD.bazel"
    tar -C "$world/upstream" -czf "$world/mirror/$2" "$1-1"
  else
    printf 'content of %s' "$2" >"$world/mirror/$2"
  fi
  sum=$(sha256sum "$world/mirror/$2" | cut -d' ' -f1)
  printf '%s %s %s %s %s\n' "$1" "$2" "$sum" "$3" "${4--}" >>"$world/checkout/tools/bazel/sources.txt"
  printf 'Package: %s\nVersion: 1:2-3\nChecksums-Sha256:\n %s 9 %s\nDirectory: pool\n\n' "$1" "$sum" "$2" >"$world/mirror/$1.showsrc"
}

stub_system() {
  stub uname <<<'[[ $1 == -s ]] && echo "${FAKE_SYSTEM-Linux}" || echo "${FAKE_CPU-x86_64}"'
  stub id <<<'[[ $1 == -u ]] && echo "${FAKE_UID-0}" || echo fakeuser'
  stub df <<<'printf "Avail\n%sM\n" "${FAKE_FREE-100000}"'
  stub mount <<<'exit 1'
}

stub_apt() {
  stub apt-config <<'END'
case $1 in
  shell) printf '%s=%q\n' "$2" "$world/etc/apt/sources.list" "$4" "$world/etc/apt/sources.list.d" ;;
  dump) echo 'Acquire::http::Proxy "http://proxy.test";' ;;
esac
END
  stub apt-get <<'END'
echo "apt-get $*" >>"$world/calls"
case $1 in
  update) [[ -z ${FAKE_UNREACHABLE-} ]] || { echo "E: cannot connect"; exit 100; } ;;
  source) for last; do :; done; [[ ${FAKE_HOLE-} != "${last%%=*}" ]] || { echo "E: 404 Not Found"; exit 100; }
    cp "$world/mirror/${last%%=*}"_* . ;;
esac
END
  stub apt-cache <<'END'
case $1 in
  show) [[ -z ${FAKE_BAZEL-7.7.1} || $2 == nowhere* ]] || printf 'Package: %s\nVersion: %s+ds-8\n' "$2" "${FAKE_BAZEL-7.7.1}" ;;
  showsrc) cat "$world/mirror/$3.showsrc" ;;
esac
END
}

stub_root_tools() {
  stub mmdebstrap <<'END'
echo "mmdebstrap $*" >>"$world/calls"
root=${*: -2:1}
mkdir -p "$root"/{etc/bazel,etc/ssl/certs/java,usr/share/bazel/rules/cc/cc/compiler}
: >"$root/usr/share/bazel/rules/cc/cc/compiler/BUILD"
printf 'startup --install_base=/usr/share/bazel\nbuild --sandbox_debug\n' >"$root/etc/bazel/bazelrc"
: >"$root/etc/ssl/certs/java/cacerts"
case ${FAKE_MMDEBSTRAP-} in
  full) echo "dpkg: No space left on device"; exit 25 ;;
  broken) echo "E: a maintainer script failed"; exit 25 ;;
  wait) cd "$root" && echo $BASHPID >"$world/waiting"; until [[ -e $world/go ]]; do sleep 0.1; done ;;
esac
END
  stub bwrap <<'END'
case "$*" in
  "--bind / / --dev-bind /dev /dev true") [[ -z ${FAKE_NO_NAMESPACES-} ]] || { echo "bwrap: no permission"; exit 1; }; exit 0 ;;
  *"/usr/bin/bazel --version") echo "bazel ${FAKE_ROOT_BAZEL-7.7.1}"; exit ;;
esac
printf '%s\n' "$*" >"$world/entered"
env >"$world/env"
while (($#)); do [[ $1 != --ro-bind-data ]] || cat <&"$2" >"$world/bazelrc"; shift; done
exit 5
END
}

# bazelw ARGUMENTS...: sets $status, and leaves what was said in $world/said. `VARIABLE=value bazelw` works.
bazelw() {
  status=0
  HOME=$world/home PATH=$world/bin "$world/checkout/bazelw" "$@" >"$world/said" 2>&1 </dev/null || status=$?
}

failures=0
fail() {
  printf 'FAILED at line %s: %s\n' "${BASH_LINENO[1]}" "$1"
  sed 's/^/    /' "$world/said"
  failures=$((failures + 1))
}
expect_status() { [[ $status == "$1" ]] || fail "status $status, not $1"; }
expect_said() { grep -qF -- "$1" "$world/said" || fail "not said: $1"; }
expect_in() { grep -qF -- "$2" "$world/$1" || fail "not in $1: $2"; }
expect_not_in() { ! grep -qF -- "$2" "$world/$1" || fail "in $1: $2"; }
expect_calls() { [[ $(grep -cF -- "$2" "$world/calls") == "$1" ]] || fail "not $1 calls of $2"; }
# Nothing half-made is left and nothing was made.
expect_nothing_made() { [[ -z $(compgen -G "$world/home/.cache/cohort/provisioning.*"; compgen -G "$world/home/.cache/cohort/*-*") ]] || fail "left: $(ls "$world/home/.cache/cohort")"; }

# run_tests: runs every function test_*, each on a new machine.
run_tests() {
  local name run=0
  for name in $(compgen -A function test_); do
    printf '%s\n' "$name"
    make_machine
    "$name"
    run=$((run + 1))
  done
  printf '%s tests, %s failures\n' "$run" "$failures"
  ((run > 0 && failures == 0))
}
