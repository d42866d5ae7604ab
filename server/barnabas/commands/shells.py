"""bash, zsh and fish for `barnabas completion`: a script for each, and the words that it completes.

The rule: a completion replaces the word before the cursor as the shell splits it, and stands for that name when the
line is run: names with colons, commas, blanks and quotes, and values after `--option=`.
"""

from __future__ import annotations

import os
import re

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

_BASH = """\
%(complete_func)s() {
    local response type value
    response=$(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1")
    while IFS=, read -r type value; do
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done <<< "$response"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local type value help
    local -a plain described
    local -a response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
%(complete_var)s=zsh_complete %(prog_name)s)}")
    [[ ${words[CURRENT]} == --*=* ]] && compset -P 1 '*='
    for type value help in $response; do
        case $type in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain) [[ $help == _ ]] && plain+=("$value") || described+=("$value:$help") ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described
    (( $#plain )) && compadd -V unsorted -a plain
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""
_FISH = """\
function %(complete_func)s
    set -l word (commandline -ct)
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD="$word" %(prog_name)s)
    set -l option (string match --regex -- '^--[^=]+=' "$word")
    for completion in $response
        set -l parts (string split --max 1 "," -- $completion)
        set -l values $parts[2]
        switch $parts[1]
            case dir
                set values (__fish_complete_directories $parts[2])
            case file
                set values (__fish_complete_path $parts[2])
        end
        for value in $values
            echo "$option$value"
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""
_QUOTED_IN_BASH = re.compile(r"[^\w@%+=:,./-]")
_ESCAPED = r"\\\g<0>"
_OPTION = re.compile(r"--[^=]+=")
_SPLIT_BY_BASH = re.compile(r".*[:=]")


class Bash(BashComplete):
    """bash, which splits words at colons and equals signs and inserts completions unchanged."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that ends at the cursor, and that word."""
        words = split_arg_string(f"{os.environ['COMP_WORDS']}x")
        return words[1:-1], words[-1][:-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return the line of a completion: without the part that bash has split off, and quoted unless a quote is open."""
        incomplete = self.get_completion_args()[1]
        before = os.environ["COMP_WORDS"].removesuffix(incomplete)
        if item.type != "plain" or not before.endswith((" ", "\t")):  # bash splits nothing within quotes
            return super().format_completion(item)
        option, split = _OPTION.match(incomplete), _SPLIT_BY_BASH.match(incomplete)
        of_value = split[0].removeprefix(option[0] if option else "") if split else ""
        return f"{item.type},{_QUOTED_IN_BASH.sub(_ESCAPED, item.value.removeprefix(of_value))}"


class Zsh(ZshComplete):
    """zsh, which needs the start of a value after `--option=`."""

    source_template = _ZSH


class Fish(FishComplete):
    """fish, where a word is completed as a whole, with the `--option=` before a value."""

    source_template = _FISH


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}
