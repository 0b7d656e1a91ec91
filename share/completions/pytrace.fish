# fish completion for pytrace: pytrace itself says what fits.
function __pytrace_complete
    for line in (command pytrace --complete fish (commandline -cp) 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :folders
                __fish_complete_directories (commandline -ct)
            case '*'
                printf '%s\n' $line
        end
    end
end
complete -c pytrace -f -a '(__pytrace_complete)'
