# shellcheck shell=bash
# Modules on a machine that reaches no registry: Bazel is told where each lies, and then asks for no version of it.
#
#   $modules/NAME   a row of sources.txt, unpacked; or a module without content
#
# The rule sets among the modules come with the root, and Debian's own settings name them.

# What modules of ours, of the table, of the rule sets and of Bazel itself name and nothing in C++ uses. Each has to be found.
readonly empty_modules=(apple_support buildozer libpfm protobuf re2 rules_foreign_cc zlib)

# Changes with the table and with how modules are made, so that a change makes them anew beside the old ones.
modules_id() { cat "$parts/sources.txt" "$parts/modules.sh" | sha256sum | cut -c1-8; }

make_modules() { # FOLDER
  modules_made=$1
  step "unpacking modules" unpack_modules || die "cannot make modules of the archives in $distdir:" "$(step_tail 3)"
}

unpack_modules() {
  local name failed=0
  mkdir "$modules_made" || return
  read_sources unpack_module
  for name in "${empty_modules[@]}"; do
    mkdir "$modules_made/$name" && : >"$modules_made/$name/BUILD.bazel" &&
      printf 'module(name = "%s")\n' "$name" >"$modules_made/$name/MODULE.bazel" || return
  done
  depend_on_all || return
  ((!failed))
}

# Bazel refuses settings for a module that nothing depends on, and not every workspace depends on all of these. But every one
# depends on Bazel's own modules, and this is one of them.
depend_on_all() {
  local folder
  for folder in "$modules_made"/*; do
    [[ ${folder##*/} == buildozer ]] || printf 'bazel_dep(name = "%s")\n' "${folder##*/}"
  done >>"$modules_made/buildozer/MODULE.bazel"
}

unpack_module() { # PACKAGE FILE SHA256 NAME MODULE
  local folder=$modules_made/$5
  [[ $5 != - ]] || return 0
  # Without compiling each header alone, as in repositories.bzl: half of the time that Abseil takes to build.
  { mkdir "$folder" && tar -xf "$distdir/$4" -C "$folder" --strip-components=1 --no-same-owner &&
    find "$folder" -name BUILD.bazel -exec sed -i '/^ *"parse_headers",$/d' {} +; } || failed=1
  # An archive from before modules; the registry adds the same line.
  [[ -f $folder/MODULE.bazel ]] || printf 'module(name = "%s")\n' "$5" >"$folder/MODULE.bazel" || failed=1
}

# Bazel's settings for them.
module_settings() {
  local folder
  for folder in "$modules"/*; do
    printf 'common --override_module=%s=%s\n' "${folder##*/}" "$(rc_word "$folder")"
  done
}
