# Completion of `trainer` in fish.

function __trainer_words
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  set -l prefix (string match -r '^[^=]*=' -- $current)
  for line in ($words[1] __complete $words[2..] "$current" 2>/dev/null)
    if test "$line" = @files
      __fish_complete_path (string replace -r '^[^=]*=' '' -- "$current") | string replace -r '^' "$prefix"
    else
      echo "$prefix$line"
    end
  end
end

complete -c trainer -f -a '(__trainer_words)'
