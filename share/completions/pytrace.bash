# bash completion for pytrace: pytrace itself says what fits.
_pytrace() {
    local line=${COMP_LINE:0:COMP_POINT} current=${COMP_WORDS[COMP_CWORD]} answer
    COMPREPLY=()
    # A break of bash alone is a word to it; candidates begin behind it.
    case $current in ':' | '=' | '@' | '<' | '>') current= ;; esac
    mapfile -t answer < <("${COMP_WORDS[0]}" --complete bash "$line" 2>/dev/null)
    case ${answer[0]-} in
        :files) compopt -o filenames && mapfile -t COMPREPLY < <(compgen -f -- "$current") && return ;;
        :folders) compopt -o filenames && mapfile -t COMPREPLY < <(compgen -d -- "$current") && return ;;
    esac
    local word
    for word in "${answer[@]}"; do
        case $word in
            :files) compopt -o filenames; while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current") ;;
            :folders) ;;
            *) COMPREPLY+=("$word") ;;
        esac
    done
    case ${COMPREPLY[*]-} in *: | *'(' | *= | */) compopt -o nospace ;; esac
}
complete -F _pytrace pytrace
