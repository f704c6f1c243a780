# shellcheck shell=bash
# What provisioning needs of the machine. Each thing that is missing is one message: what, and what to do about it.

root_megabytes=3000              # the peak while the root is made; the root itself takes 1.8 GB
readonly packages_megabytes=2000 # more, where COHORT_ROOT_PACKAGES names any: enough for LLVM and LibTorch
readonly sources_megabytes=300   # the mirror's indices and the archives
readonly or_bazelisk="Or install bazelisk (a Bazel launcher) and put it on PATH: bazelw then uses that."

is_root() { [[ $(id -u) == 0 ]]; }

check_machine() {
  local needed=$sources_megabytes
  [[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] ||
    die "bazelw can make a Bazel only on Linux x86-64; this is $(uname -s) $(uname -m). $or_bazelisk"
  type -P apt-get apt-cache apt-config >/dev/null ||
    die "this machine has no Bazel, and no apt from whose mirror one could be made. $or_bazelisk"
  [[ -d $root ]] || needed=$root_megabytes
  check_space "$cache" "$needed" "Make room, or set XDG_CACHE_HOME to a folder on another disk. (The build itself needs about 8000 MB more.)"
}

free_megabytes() { df --output=avail -BM "$1" | tail -n 1 | tr -dc 0-9; } # FOLDER

check_space() { # FOLDER MEGABYTES ADVICE
  local free
  free=$(free_megabytes "$1")
  ((free >= $2)) || die "not enough space in $1: $2 MB needed, $free MB available." "$3"
}

# The programs that make and enter the root. Root gets them installed; another user is told what to ask for.
install_tools() {
  local -a missing=()
  type -P mmdebstrap >/dev/null || missing+=(mmdebstrap)
  type -P bwrap >/dev/null || missing+=(bubblewrap)
  type -P mount >/dev/null || missing+=(mount) # without it mmdebstrap goes on without /proc, and the JDK's set-up fails
  is_root || type -P newuidmap >/dev/null || missing+=(uidmap)
  [[ -f $keyring ]] || missing+=(debian-archive-keyring) # on a derivative of Debian
  ((${#missing[@]})) || return 0
  is_root || die "missing on this machine: ${missing[*]}." "As root, once: apt-get install ${missing[*]}" "$or_bazelisk"
  if ! step "installing ${missing[*]}" install_packages "${missing[@]}"; then
    die "apt-get could not install ${missing[*]}:" "$(step_tail 5)" "Install them by hand, then try again."
  fi
}

install_packages() {
  local -a install=(env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends)
  "${install[@]}" "$@" && return
  # A fresh image has no package lists, an old one has stale ones.
  apt-get update && "${install[@]}" "$@"
}

check_namespaces() {
  local answer user
  if ! answer=$(bwrap --bind / / --dev-bind /dev /dev true 2>&1); then
    die "bubblewrap cannot make a namespace here: $answer" \
      "On a machine that forbids them to users, as root: sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0" \
      "In a container, start it with --privileged, or with --cap-add SYS_ADMIN --security-opt seccomp=unconfined." "$or_bazelisk"
  fi
  is_root && return
  check_space /tmp "$root_megabytes" "Make room: without root, the root is first made there, where other user ids can see it."
  user=$(id -un)
  { grep -qE "^($user|$(id -u)):" /etc/subuid && grep -qE "^($user|$(id -u)):" /etc/subgid; } 2>/dev/null ||
    die "$user has no subordinate user ids, which making a root without being root needs." \
      "As root, once: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $user" "$or_bazelisk"
}
