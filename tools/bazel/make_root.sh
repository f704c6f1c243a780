# shellcheck shell=bash
# The root file system: Debian's minimal system with Bazel, a C++ compiler, a JDK and Python, made by mmdebstrap.

readonly packages=bazel-bootstrap,git,ca-certificates,unzip,zip,patch,curl,python3-pip

# Changes with what the root is made of. A change of the recipe makes a new root beside the old one.
recipe_id() { printf '%s-%s' "$suite" "$(sha256sum <<<"$suite $packages" | cut -c1-8)"; }

make_root() { # FOLDER
  local answer
  mkdir "$1"
  rm -rf "$work/apt/lists"
  if ! step "making the root (Bazel, g++, JDK, Python; 400 MB to download)" bootstrap "$1"; then
    die "mmdebstrap could not make the root$(why_failed):" "$(step_tail 8)" "Nothing half-made is left; try again."
  fi
  prepare_root "$1"
  answer=$(bwrap --ro-bind "$1" / --dev-bind /dev /dev --proc /proc /usr/bin/bazel --version 2>&1) && is_usable_version "${answer#bazel }" ||
    die "the new root's Bazel does not work: $answer"
}

why_failed() {
  local free
  free=$(df --output=avail -BM "$work" | tail -n 1 | tr -dc 0-9)
  ! { grep -qiE 'no space left|not enough free space|don.t have enough' "$step_log" || ((free < 50)); } ||
    printf ' (the disk is full: %s MB available, %s MB needed)' "$free" "$root_megabytes"
}

bootstrap() { # FOLDER
  local scratch
  # shellcheck disable=SC2016 # $1 is for the hook's shell
  local -a make=(mmdebstrap --variant=apt --architectures=amd64
    --aptopt="$work/apt/acquire.conf" --aptopt='APT::Install-Recommends "false"' --include="$packages"
    --customize-hook='rm -rf "$1"/var/cache/apt/archives/*.deb')
  if is_root; then
    "${make[@]}" --mode=root "$suite" "$1" "$mirror"
    return
  fi
  # Without root: made as a range of subordinate ids, where those can reach it (they cannot see into a private HOME), then
  # unpacked as files of our own.
  scratch=$(mktemp -d /tmp/cohort-bazelw.XXXXXX)
  chmod 755 "$scratch"
  printf '%s\n' "$scratch" >"$work/scratch"
  TMPDIR=$scratch "${make[@]}" --mode=unshare "$suite" - "$mirror" | tar -x -C "$1" --no-same-owner --exclude='./dev/*'
  remove_scratch "$scratch"
}

remove_scratch() { # FOLDER
  rm -rf --one-file-system "$1" 2>/dev/null || mmdebstrap --unshare-helper rm -rf --one-file-system "$1" || true
  rm -rf --one-file-system "$1"
}

prepare_root() { # FOLDER
  # The machine's own certificates are shown over the root's, and have none in Java's form.
  mkdir -p "$1/usr/share/cohort"
  cp "$1/etc/ssl/certs/java/cacerts" "$1/usr/share/cohort/cacerts"
  : >>"$1/etc/pip.conf"
}
