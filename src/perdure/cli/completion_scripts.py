"""The completion scripts of the shells. Each calls the program itself; see `completion`."""

from __future__ import annotations

BASH = """\
# Completion of perdure for bash 4.4 or newer.
_perdure() {
    local found code
    found=$(_PERDURE_COMPLETE=bash "$1" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    code=$?
    COMPREPLY=()
    if [ $code -eq 3 ]; then
        compopt -o default
    elif [ -n "$found" ]; then
        mapfile -t COMPREPLY <<<"$found"
        case "$found" in *[/:=]) compopt -o nospace ;; esac
    fi
}
complete -F _perdure perdure schedulerctl
"""

ZSH = """\
#compdef perdure schedulerctl
# Completion of perdure for zsh: evaluate it, or put it as _perdure into a directory of $fpath.
_perdure() {
    local found code
    found=$(_PERDURE_COMPLETE=zsh "$words[1]" "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    code=$?
    if (( code == 3 )); then
        compset -P '*='
        _files
    elif [[ -n "$found" ]]; then
        local -a lines
        lines=("${(@f)found}")
        _describe -V perdure lines
    fi
}
if [[ "$funcstack[1]" == _perdure ]]; then
    _perdure "$@"
else
    compdef _perdure perdure schedulerctl
fi
"""

FISH = """\
# Completion of perdure for fish 3.1 or newer.
function __perdure_complete
    set -l program (commandline -opc)[1]
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    set -l found (_PERDURE_COMPLETE=fish $program $words 2>/dev/null)
    if test $status -eq 3
        __fish_complete_path (commandline -ct)
    else
        for line in $found
            echo -- $line
        end
    end
end
complete --command perdure --no-files --keep-order --arguments '(__perdure_complete)'
complete --command schedulerctl --no-files --keep-order --arguments '(__perdure_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
