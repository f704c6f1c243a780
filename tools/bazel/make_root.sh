# shellcheck shell=bash
# The root file system: Debian's minimal system with Bazel, a C++ compiler, a JDK and Python, made by mmdebstrap.

readonly packages=bazel-bootstrap,git,ca-certificates,unzip,zip,patch,curl,python3-pip

# add_root_packages: sets $root_packages to those of COHORT_ROOT_PACKAGES, sorted, so that their order makes no other root; and
# adds what they take to $root_megabytes.
add_root_packages() {
  local name
  local -a named=()
  root_packages=()
  read -rd '' -a named <<<"${COHORT_ROOT_PACKAGES-}" || true
  ((${#named[@]})) || return 0
  for name in "${named[@]}"; do
    [[ $name =~ ^[a-z0-9][a-z0-9+.-]*$ ]] || die "COHORT_ROOT_PACKAGES: '$name' is not the name of a Debian package." \
      "Names are separated by spaces: COHORT_ROOT_PACKAGES='clang lld' ./bazelw ..."
  done
  mapfile -t root_packages < <(printf '%s\n' "${named[@]}" | LC_ALL=C sort -u)
  root_megabytes=$((root_megabytes + packages_megabytes))
}

all_packages() { (IFS=, && printf '%s' "$packages${root_packages[*]:+,${root_packages[*]}}"); }

# Changes with what the root is made of. A change of the recipe makes a new root beside the old one.
recipe_id() {
  printf '%s-%s' "$suite" \
    "$({ printf '%s %s\n' "$suite" "$(all_packages)" && sed -n '/^prepare_root()/,/^}/p' "$parts/make_root.sh"; } | sha256sum | cut -c1-8)"
}

make_root() { # FOLDER
  local answer
  mkdir "$1"
  rm -rf "$work/apt/lists"
  if ! step "making the root (Bazel, g++, JDK, Python${root_packages[*]:+, ${root_packages[*]}}; 700 MB or more to download)" bootstrap "$1"; then
    cp "$step_log" "$cache/failed.log" 2>/dev/null || true
    ! is_full || die "the disk is full: making the root in $cache needs $root_megabytes MB. Nothing half-made is left." \
      "Make room, or set XDG_CACHE_HOME to a folder on another disk." "$(step_tail 3)"
    die "mmdebstrap could not make the root. Nothing half-made is left; the log is $cache/failed.log and ends:" "$(step_tail 8)"
  fi
  prepare_root "$1"
  answer=$(bwrap --ro-bind "$1" / --dev-bind /dev /dev --bind /proc /proc /usr/bin/bazel --version 2>&1) || true
  is_usable_version "${answer#bazel }" || die "the new root's Bazel does not work: $answer"
}

# Whether the step failed for want of space; it may not have been able to log that.
is_full() { grep -qiE 'no space left|enough (free )?space|quota exceeded' "$step_log" || (($(free_megabytes "$work") < 50)); }

bootstrap() { # FOLDER
  local scratch line
  # shellcheck disable=SC2016 # $1 is for the hook's shell
  local -a make=(mmdebstrap --variant=apt --architectures=amd64
    --aptopt='APT::Install-Recommends "false"' --include="$(all_packages)"
    --customize-hook='rm -rf "$1"/var/cache/apt/archives/*.deb')
  # Line by line, not as a file: without root mmdebstrap could not read it in a private HOME, and would not say so.
  while read -r line; do make+=(--aptopt="$line"); done <"$work/apt/acquire.conf"
  if is_root; then
    "${make[@]}" --mode=root "$suite" "$1" "$mirror"
    return
  fi
  # Without root: made as a range of subordinate ids, where those can reach it (they cannot see into a private HOME), then
  # unpacked as files of our own.
  scratch=$(mktemp -d /tmp/cohort-bazelw.XXXXXX) || return
  printf '%s\n' "$scratch" >"$work/scratch"
  chmod 755 "$scratch"
  TMPDIR=$scratch "${make[@]}" --mode=unshare "$suite" - "$mirror" | tar -x -C "$1" --no-same-owner --exclude='./dev/*'
}

remove_scratch() { # FOLDER
  mmdebstrap --unshare-helper rm -rf --one-file-system "$1"/* 2>/dev/null || true
  rm -rf --one-file-system "$1"
}

# What Debian's packages leave to be done. Part of the recipe: a change of this function makes a new root.
prepare_root() { # FOLDER
  # The machine's own certificates are shown over the root's, and have none in Java's form.
  mkdir -p "$1/usr/share/cohort"
  cp "$1/etc/ssl/certs/java/cacerts" "$1/usr/share/cohort/cacerts"
  # Abseil asks for this setting; Debian's rules_cc is older than it.
  local settings=$1/usr/share/bazel/rules/cc/cc/compiler/BUILD
  [[ -f $settings ]] || die "the new root's rules_cc is not as expected: there is no ${settings#"$1"}."
  grep -q '"emscripten"' "$settings" || printf '\nconfig_setting(\n    name = "%s",\n    flag_values = {"%s": "%s"},\n)\n' \
    emscripten @rules_cc//cc/private/toolchain:compiler emscripten >>"$settings"
}
