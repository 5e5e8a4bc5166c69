// adjoint completions SHELL: a script that makes a shell ask `adjoint complete` what may follow. It
// names no command and no flag, so it never has to be written anew.
#include <iostream>

#include "cli/choice.h"
#include "cli/command.h"
#include "cli/values.h"

namespace adjoint {

namespace {

// Bash breaks words at '=' and ':', so the word that it completes may be the end of what was typed.
constexpr std::string_view kBashScript =
    R"script(# bash completion of adjoint, from `adjoint completions bash`
_adjoint() {
  local current=${COMP_WORDS[COMP_CWORD]} glued= word line kind lead
  local -a asked=() lines=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
    word=${word#[\"\']} word=${word%[\"\']}
    if [[ ${#asked[@]} -gt 0 && ( $word == [=:]* || $glued ) ]]; then
      asked[-1]+=$word
    else
      asked+=("$word")
    fi
    [[ $word == *[=:] ]] && glued=1 || glued=
  done
  current=${current#[\"\']}
  [[ $current == [=:] ]] && current=
  lead=${asked[-1]%"$current"}
  mapfile -t lines < <("${COMP_WORDS[0]/#\~/$HOME}" complete "${asked[@]}" 2>/dev/null)
  kind=${lines[0]}
  COMPREPLY=()
  for line in "${lines[@]:1}"; do
    word=${line%%$'\t'*}
    COMPREPLY+=("${word#"$lead"}")
  done
  case $kind in
    files*) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
    folders*) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$current") ;;
  esac
  [[ $kind == *open ]] && compopt -o nospace
}
complete -F _adjoint adjoint
)script";

constexpr std::string_view kZshScript = R"script(#compdef adjoint
# zsh completion of adjoint, from `adjoint completions zsh`
_adjoint() {
  local -a asked lines shown how
  local line word kind inside
  asked=("${(@Q)words[2,CURRENT]}")
  asked[-1]=${asked[-1]#[\"\']}  # a quote that is still open
  lines=("${(@f)$(${(Q)words[1]} complete "${asked[@]}" 2>/dev/null)}")
  kind=$lines[1]
  shift lines
  [[ $words[CURRENT] == --*=* ]] && inside=1 && compset -P '*='
  for line in $lines; do
    word=${line%%$'\t'*}
    [[ -n $inside ]] && word=${word#*=}
    shown+=("${word//:/\\:}:${line#*$'\t'}")
  done
  [[ $kind == *open ]] && how=(-S '')
  (( $#shown )) && _describe -V adjoint shown "${how[@]}"
  case $kind in
    files*) _files ;;
    folders*) _files -/ ;;
  esac
}
if [[ $funcstack[1] == _adjoint ]]; then _adjoint "$@"; else compdef _adjoint adjoint; fi
)script";

constexpr std::string_view kFishScript =
    R"script(# fish completion of adjoint, from `adjoint completions fish`
function __adjoint_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] complete $words[2..-1] "$current" 2>/dev/null)
    set -l lead (string match -r -- '^--[^=]*=' "$current")
    set -l rest (string replace -r -- '^--[^=]*=' '' "$current")
    string join \n -- $lines[2..-1]
    switch "$lines[1]"
        case 'files*'
            __fish_complete_path "$rest" | string replace -r -- '^' "$lead"
        case 'folders*'
            __fish_complete_directories "$rest" '' | string replace -r -- '^' "$lead"
    end
end
complete -c adjoint -f -a '(__adjoint_complete)'
)script";

int print_script(const std::string& shell) {
  check_choice("completions", shell, choices_of("completions shell"));
  std::cout << (shell == "bash" ? kBashScript : shell == "zsh" ? kZshScript : kFishScript);
  return kDone;
}

}  // namespace

void add_completions(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("completions", "a script with which a shell completes commands and flags");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")->required();
  command->footer(
      "Installed packages have these scripts already. Otherwise:\n"
      "Examples:\n"
      "  source <(adjoint completions bash)\n"
      "  adjoint completions zsh > ~/.zfunc/_adjoint\n"
      "  adjoint completions fish > ~/.config/fish/completions/adjoint.fish");
  command->callback([=, &action] { action = [=] { return print_script(*shell); }; });
}

}  // namespace adjoint
