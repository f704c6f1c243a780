# shellcheck shell=bash
# The machine's own Debian mirror: which it is, whether it offers what we pin, and the archives from it.
# apt is asked with a state of its own, so the machine's package lists are neither read nor changed; signatures are checked by it.

readonly suite=forky
readonly keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# read_sources FUNCTION: calls FUNCTION PACKAGE FILE SHA256 NAME MODULE for each row of the table.
read_sources() {
  local package file sha256 name module
  while read -r package file sha256 name module; do
    [[ -z $package || $package == \#* ]] || "$1" "$package" "$file" "$sha256" "$name" "$module"
  done <"$parts/sources.txt"
}

has_source() { [[ -f $distdir/$4 ]] || lacking=1; }
has_all_sources() {
  local lacking=0
  read_sources has_source
  ((!lacking))
}

# The addresses that the machine's apt takes packages from, in its own order.
apt_addresses() {
  local list parts_dir
  if [[ -n ${COHORT_MIRROR-} ]]; then
    printf '%s\n' "$COHORT_MIRROR"
    return
  fi
  eval "$(apt-config shell list Dir::Etc::sourcelist/f parts_dir Dir::Etc::sourceparts/d)"
  # Some of these files do not exist on most machines.
  { cat "${parts_dir%/}"/*.sources "$list" "${parts_dir%/}"/*.list 2>/dev/null || true; } |
    sed -nE -e 's/^[[:space:]]*deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\2/p' -e 's/^URIs:[[:space:]]*//p' |
    tr -s '[:blank:]' '\n' | sed 's:/*$::' | awk '$0 && !seen[$0]++'
}

# choose_mirror: sets $mirror to the first address that has the suite, and leaves apt's view of it in $work/apt.
choose_mirror() {
  local address
  local -a tried=()
  while read -r address; do
    write_apt_config "$address"
    if step "asking $address what it offers" apt_ apt-get update -o APT::Update::Error-Mode=any; then
      mirror=$address
      break
    fi
    tried+=("$address: $(grep -m 1 -E '^(E|W|Err):' "$step_log" || step_tail 1)")
  done < <(apt_addresses)
  if [[ -z ${mirror-} ]]; then
    ((${#tried[@]})) || tried=("there is no 'deb' line and no 'URIs:' in this machine's apt sources")
    die "no mirror of Debian $suite can be reached:" "${tried[@]}" \
      "Name one: COHORT_MIRROR=ADDRESS ./bazelw ...  (the part of the address before /dists)." "$or_bazelisk"
  fi
  compare_offer
}

apt_() { APT_CONFIG=$work/apt/apt.conf "$@"; }

write_apt_config() { # ADDRESS
  local signed=
  [[ ! -f $keyring ]] || signed="[signed-by=$keyring] "
  rm -rf "$work/apt"
  mkdir -p "$work/apt"/{lists/partial,cache/archives/partial,none}
  : >"$work/apt/status"
  printf '%s %s%s %s main\n' deb "$signed" "$1" "$suite" deb-src "$signed" "$1" "$suite" >"$work/apt/sources.list"
  # How the machine reaches its mirrors (proxies, certificates) stays as it is.
  apt-config dump | grep -E '^Acquire::(http|https|Check-)' >"$work/apt/acquire.conf" || true
  cat >>"$work/apt/acquire.conf" <<END
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
END
  cat - "$work/apt/acquire.conf" >"$work/apt/apt.conf" <<END
Dir::State "$work/apt";
Dir::State::Lists "$work/apt/lists";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt/cache";
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "$work/apt/none";
Dir::Etc::parts "$work/apt/none";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Sandbox::User "root";
Acquire::Languages "none";
END
}

# compare_offer: one message for all that differs from what we pin.
compare_offer() {
  local found
  differences=()
  if [[ ! -d $root ]]; then
    found=$(apt_ apt-cache show bazel-bootstrap 2>/dev/null | awk '/^Version:/ && !found { found = $2 } END { print found }') || true
    is_usable_version "$found" ||
      differences+=("bazel-bootstrap: wanted 7.7 or a later 7, found ${found:-none}; COHORT_MIRROR=ADDRESS may name a mirror that has it, or install bazelisk")
  fi
  [[ -d $root ]] || check_root_packages
  read_sources compare_source
  ((${#differences[@]} == 0)) || die "$mirror ($suite) does not offer what is pinned:" "${differences[@]}" \
    "Archives can be supplied by hand: put them into a folder under these names, and COHORT_DISTDIR=FOLDER ./bazelw ..."
}

check_root_packages() {
  local name
  local -a lacking=()
  for name in "${root_packages[@]}"; do
    [[ -n $(apt_ apt-cache show "$name" 2>/dev/null || true) ]] || lacking+=("$name")
  done
  ((${#lacking[@]} == 0)) || die "COHORT_ROOT_PACKAGES: $mirror ($suite, main) has no package ${lacking[*]}."
}

compare_source() { # PACKAGE FILE SHA256 NAME
  local offers
  [[ ! -f $distdir/$4 ]] && ! is_supplied "$@" || return 0
  offers=$(offered_files "$1" | awk '{ print $2, $3 }')
  grep -qxF "$2 $3" <<<"$offers" && return
  differences+=("$1: wanted $2 (sha256 $3) as $4, found $(grep -F '.orig.tar' <<<"$offers" | sed 's/ / (sha256 /; s/$/)/' | paste -sd, || true)")
  [[ -n $offers ]] || differences[-1]+=none
}

# The files of source package $1: a line "VERSION FILE SHA256" each.
offered_files() {
  { apt_ apt-cache showsrc --only-source "$1" 2>/dev/null || true; } | awk '
    /^Version:/ { version = $2 }
    /^[^ ]/ { sums = /^Checksums-Sha256:/ }
    /^ / && sums { print version, $3, $1 }'
}

# is_supplied: whether COHORT_DISTDIR has the archive; one with another hash is an error.
is_supplied() { # PACKAGE FILE SHA256 NAME
  [[ -n ${COHORT_DISTDIR-} ]] || return 1
  [[ -d $COHORT_DISTDIR ]] || die "COHORT_DISTDIR=$COHORT_DISTDIR is not a directory."
  [[ -f $COHORT_DISTDIR/$4 ]] || return 1
  is_intact "$COHORT_DISTDIR/$4" "$3" ||
    die "$COHORT_DISTDIR/$4 is not the archive that is pinned: wanted sha256 $3, found $(sha256sum "$COHORT_DISTDIR/$4" | cut -d' ' -f1)."
}

is_intact() { [[ $(sha256sum "$1" | cut -d' ' -f1) == "$2" ]]; } # FILE SHA256

fetch_sources() {
  missing=()
  mkdir -p "$work/sources"
  read_sources fetch_source
  ((${#missing[@]} == 0)) || die "$mirror does not deliver what it offers:" "${missing[@]}" \
    "Try again later, or put them into a folder under these names, and COHORT_DISTDIR=FOLDER ./bazelw ..."
}

fetch_source() { # PACKAGE FILE SHA256 NAME
  local version file=$work/sources/$2
  [[ ! -f $distdir/$4 ]] || return 0
  if is_supplied "$@"; then
    cp "$COHORT_DISTDIR/$4" "$file"
  else
    version=$(offered_files "$1" | awk -v file="$2" -v sum="$3" '$2 == file && $3 == sum { found = $1 } END { print found }')
    if ! step "fetching $2" download_source "$1=$version" || ! is_intact "$file" "$3"; then
      missing+=("$4 ($2, sha256 $3): $(step_tail 1)")
      return
    fi
  fi
  mv -T "$file" "$distdir/$4"
}

download_source() { cd "$work/sources" && apt_ apt-get source --download-only --tar-only "$1"; }
