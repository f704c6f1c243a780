# shellcheck shell=bash
# The machine has no Bazel: make a root file system that has one, once, and the archives that are built from.
#
#   $cache/root-RECIPE        the root; nothing but mount points is added after it got this name
#   $cache/output-RECIPE      what Bazel builds in it
#   $cache/distdir            archives by the name that Bazel asks for
#   $cache/modules-TABLE      modules, in the place of a registry
#   $cache/lock               held while provisioning; its content is the holder's pid
#   $cache/provisioning.*     work in progress; whoever holds the lock owns it, so one that he finds is a dead call's
#
# Protocol:
#   1 take the lock         two calls at once: one works, the other waits and then finds everything done
#   2 remove leftovers      what a killed call left runs no longer and takes no space
#   3 check the machine     everything that may be missing is found before anything is downloaded
#   4 ask the mirror        what differs from the table is found before the large download
#   5 make it in a work folder, try it, rename it: nothing half-made ever has the final name

# shellcheck source=tools/bazel/machine.sh
source "$parts/machine.sh"
# shellcheck source=tools/bazel/mirror.sh
source "$parts/mirror.sh"
# shellcheck source=tools/bazel/make_root.sh
source "$parts/make_root.sh"
# shellcheck source=tools/bazel/modules.sh
source "$parts/modules.sh"

settle_cache() {
  export HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
  export USER=${USER:-$(id -un 2>/dev/null || id -u)}
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/cohort
  [[ $cache == /* ]] || die "the cache folder $cache is not an absolute path: set HOME or XDG_CACHE_HOME to one."
  add_root_packages
  root=$cache/root-$(recipe_id)
  output=$cache/output-$(recipe_id)
  distdir=$cache/distdir
  modules=$cache/modules-$(modules_id)
}

is_provisioned() { [[ -d $root && -d $modules ]] && has_all_sources; }

provision() {
  local since=$SECONDS
  take_lock
  remove_leftovers
  if ! is_provisioned; then
    check_machine
    work=$(mktemp -d "$cache/provisioning.XXXXXX") || die "cannot make a folder in $cache."
    chmod 755 "$work"
    step_log=$work/log
    trap 'stop_provisioning' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [[ ! -d $root ]]; then
      note "this machine has no Bazel: making one in $cache (once)."
      install_tools
      check_namespaces
    elif ! has_all_sources; then
      note "this revision pins archives that are not in $distdir yet: fetching them."
    fi
    if [[ ! -d $root ]] || ! has_all_sources; then
      choose_mirror
      fetch_sources
    fi
    if [[ ! -d $root ]]; then
      make_root "$work/root"
      mv -T "$work/root" "$root"
    fi
    if [[ ! -d $modules ]]; then
      make_modules "$work/modules"
      mv -T "$work/modules" "$modules"
    fi
    trap - EXIT HUP INT TERM
    remove_work "$work"
    note "ready after $((SECONDS - since)) s; ./bazelw help-bazelw says how to remove it."
  fi
  exec {lock_fd}>&-
}

take_lock() {
  local since=$SECONDS
  { mkdir -p "$cache" "$distdir" && [[ -w $cache && -w $distdir ]]; } 2>/dev/null ||
    die "cannot write to $cache as $(id -un) (disk full, or made by another user?)." \
      "Set XDG_CACHE_HOME to a folder of yours with $((root_megabytes / 1000)) GB free, or remove $cache."
  exec {lock_fd}>>"$cache/lock"
  if ! flock --nonblock "$lock_fd"; then
    note "another bazelw (pid $(cat "$cache/lock")) is provisioning in $cache: waiting for it."
    tick_shown=0
    until flock --nonblock "$lock_fd"; do
      tick "waiting for pid $(cat "$cache/lock")" "$since"
      sleep 0.5
    done
    [[ ! -t 2 ]] || printf '\r\033[K' >&2
  fi
  printf '%s\n' "$$" >"$cache/lock"
}

remove_leftovers() {
  local leftover
  for leftover in "$cache"/provisioning.*; do
    [[ -e $leftover ]] || continue
    note "removing what a call that was killed left in $leftover."
    remove_work "$leftover"
  done
}

# On the way out of a call that did not finish: nothing keeps running and nothing half-made stays.
stop_provisioning() {
  if [[ -n $step_pid ]]; then
    kill -TERM -- "-$step_pid" 2>/dev/null || true
    note "stopped; removing what is half-made."
  fi
  remove_work "$work"
}

# remove_work FOLDER: ends what works on FOLDER, then removes it. Never leaves the file system: a mount that is left in a
# half-made root would otherwise take the machine's /dev with it.
remove_work() {
  local folder=$1 scratch signal=TERM tries pids
  scratch=$(cat "$folder/scratch" 2>/dev/null || true)
  for ((tries = 0; tries < 100; ++tries)); do
    mapfile -t pids < <(processes_of "$folder")
    ((${#pids[@]})) || break
    ((tries < 20)) || signal=KILL
    kill "-$signal" "${pids[@]}" 2>/dev/null || true
    sleep 0.1
  done
  if grep -qF " $folder/" /proc/self/mountinfo; then
    die "there are mounts below $folder: unmount them, then try again."
  fi
  [[ -z $scratch ]] || remove_scratch "$scratch"
  rm -rf --one-file-system "$folder"
}

# The pids of all that a step in FOLDER started; see step.
processes_of() {
  grep -lszxF "COHORT_PROVISIONING=$1" /proc/[0-9]*/environ | cut -d/ -f3
}
