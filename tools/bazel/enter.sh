# shellcheck shell=bash
# Running a command in the root: it sees the machine's own files at their own paths, with the root's system under them.

# What the environment keeps: how to reach an index, how to talk to the person, and what a launched job or a library reads.
# Anything else of the machine's (PATH, CC, PYTHONPATH, LD_LIBRARY_PATH) names things that do not exist or do not fit in the root.
pass_env=(HOME USER LOGNAME TERM COLORTERM NO_COLOR TZ TMPDIR XDG_CACHE_HOME XDG_CONFIG_HOME 'COHORT_*'
  'PIP_*' '*_CERT' '*_CERT_FILE' '*_CERT_DIR' '*_CERTS' '*_CA_BUNDLE' NETRC
  'http_proxy' 'https_proxy' 'no_proxy' 'all_proxy' 'HTTP_PROXY' 'HTTPS_PROXY' 'NO_PROXY' 'ALL_PROXY'
  RANK LOCAL_RANK GROUP_RANK ROLE_RANK WORLD_SIZE LOCAL_WORLD_SIZE ROLE_WORLD_SIZE GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT
  'TORCH*' 'PET_*' 'SLURM_*' 'OMPI_*' 'PMI_*' 'PMIX_*' 'NCCL_*' 'GLOO_*' 'TP_*' 'OMP_*' 'MKL_*' 'GTEST_*' '*SAN_OPTIONS' LIBTORCH
  CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING)

# Folders of the system: the root's own, never the machine's.
is_system() { # PATH
  case /${1#/}/ in
    // | /bin/* | /boot/* | /dev/* | /etc/* | /lib/* | /lib32/* | /lib64/* | /libx32/* | /lost+found/* | /proc/* | /run/* | /sbin/* | /sys/* | /usr/* | /var/*) true ;;
    *) false ;;
  esac
}

# show OPTION PATH: adds a mount of the machine's PATH at the same place. The root is read-only inside, so its place is made here.
show() {
  if [[ -d $2 ]]; then
    mkdir -p "$root$2"
  elif [[ ! -e $root$2 ]]; then
    mkdir -p "$root${2%/*}" && : >>"$root$2"
  fi
  mounts+=("$1" "$2" "$2")
}

collect_mounts() {
  local folder
  mounts=(--ro-bind "$root" / --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys --tmpfs /run --bind /var/tmp /var/tmp)
  [[ -z ${COHORT_ROOT_WRITABLE-} ]] || mounts[0]=--bind
  # All that is not the system: homes, data, work. So a path that a person types means the same inside.
  for folder in /*; do
    [[ -d $folder && -x $folder ]] && ! is_system "$folder" && show --bind "$folder"
  done
  for folder in /etc/resolv.conf /etc/hosts /etc/ssl/certs /etc/pip.conf /etc/xdg/pip; do
    [[ ! -e $folder ]] || show --ro-bind "$folder"
  done
  is_root || show --ro-bind /etc/passwd
  is_root || show --ro-bind /etc/group
  # What a person may work on in a system folder.
  for folder in "$HOME" "$cache" "$checkout" "$PWD" "${TMPDIR-}"; do
    case $folder in
      /var/?* | /run/?* | /usr/local/?* | /usr/src/?*) [[ ! -d $folder ]] || show --bind "${folder%/}" ;;
    esac
  done
  collect_named
  ! is_system "$PWD" || [[ -d $root$PWD ]] || die "the current directory $PWD lies in this machine's system, which is not shown to Bazel." \
    "Stand elsewhere, or name it: COHORT_BIND=$PWD ./bazelw ..."
}

collect_named() {
  local path name
  while read -rd: path; do
    [[ -n $path ]] || continue
    [[ $path == /* && -e $path ]] || die "COHORT_BIND: $path does not exist, or is not an absolute path."
    is_system "$path" || continue
    [[ $path == /?*/?* ]] || die "COHORT_BIND: $path would hide the root's own $path; name folders in it."
    show --bind "${path%/}"
  done <<<"${COHORT_BIND-}:"
  # What pip's and OpenSSL's variables name; a folder that the root has something in stays the root's own.
  for name in $(compgen -e | grep -E '^(PIP_|NETRC$|.*_CERT$|.*_CERT_FILE$|.*_CERT_DIR$|.*_CA_BUNDLE$)'); do
    # One path, or several with spaces between them.
    for path in "${!name}" ${!name}; do
      if [[ $path == /?*/?* && -e $path && -z $(ls -A "$root$path/" 2>/dev/null) ]] && is_system "$path"; then
        show --ro-bind "${path%/}"
      fi
    done
  done
}

keep_only_passed_env() {
  local name pattern
  local -a named=()
  IFS=, read -ra named <<<"${COHORT_PASS_ENV-}"
  for name in $(compgen -e); do
    for pattern in "${pass_env[@]}" "${also_pass[@]}" "${named[@]}"; do
      # shellcheck disable=SC2053 # a pattern
      [[ $name != $pattern ]] || continue 2
    done
    export -n "${name?}"
  done
  unset COHORT_BAZEL # A bazelw that is called in the root takes the root's Bazel.
  export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
}

# rc_word TEXT: as one word of these settings.
rc_word() { sed "s/[[:space:]\"'\\\\#]/\\\\&/g" <<<"$1"; }

# Bazel's system-wide settings in the root: Debian's own, without the one that floods the output of failing tests and the one
# that each call warns of, and ours.
# The lowest in rank, so that .bazelrc, the user's own and the command line all win.
bazelrc() {
  grep -v -e --sandbox_debug -e --host_javabase "$root/etc/bazel/bazelrc"
  cat "$parts/root.bazelrc"
  module_settings
  printf 'startup --output_user_root=%s\n' "$(rc_word "$output")"
  printf 'common %s\n' "--distdir=$(rc_word "$distdir")" "--repo_env=COHORT_SOURCES=$(rc_word "$distdir")"
}

# enter COMMAND...: becomes COMMAND.
#
# bwrap stays as COMMAND's parent and passes no signal on. So: it ignores ^C, which reaches COMMAND by itself, to be there for
# its exit code; and when bwrap is ended, COMMAND gets TERM, and can end what it has started.
enter() {
  local bwrap
  local -a mounts
  bwrap=$(type -P bwrap) || die "bwrap is no longer there; as root: apt-get install bubblewrap"
  collect_mounts
  exec {rc_fd}< <(bazelrc)
  keep_only_passed_env
  trap '' INT QUIT
  exec "$bwrap" "${mounts[@]}" --ro-bind-data "$rc_fd" /etc/bazel/bazelrc --chdir "$PWD" \
    /usr/bin/env --default-signal=INT,QUIT /usr/bin/setpriv --pdeathsig TERM "$@"
}
