/* thinwire completion: scripts with which a shell completes thinwire's words. The scripts ask the program. */
#include "commands.h"
#include "exit.h"
#include "launcher.h"
#include <string.h>

static const char for_bash[] =
    "# Completes thinwire in bash: source <(thinwire completion bash)\n"
    "_thinwire()\n"
    "{\n"
    "    local words\n"
    "    words=$(\"${COMP_WORDS[0]}\" complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null |"
    " cut -f 1)\n"
    "    mapfile -t COMPREPLY < <(printf '%s' \"$words\")\n"
    "}\n"
    "complete -o bashdefault -o default -F _thinwire thinwire\n";

static const char for_zsh[] =
    "#compdef thinwire\n"
    "# Completes thinwire in zsh, from a folder that is in fpath.\n"
    "local -a found\n"
    "local line word\n"
    "for line in \"${(@f)$(${words[1]} complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\"; do\n"
    "    [[ -n $line ]] || continue\n"
    "    word=${line%%$'\\t'*}\n"
    "    found+=(\"${word//:/\\\\:}:${line#*$'\\t'}\")\n"
    "done\n"
    "if (( $#found )); then _describe thinwire found; else _files; fi\n";

static const char *shell(size_t index)
{
    static const char *const shells[] = {"bash", "zsh"};
    return index < sizeof shells / sizeof *shells ? shells[index] : NULL;
}

static const option_page page = {
    .usage = "thinwire completion SHELL",
    .description = "Prints a script with which a shell completes the commands, options and words of thinwire. SHELL is "
                   "bash or zsh. make install installs both scripts.",
    .examples = "  source <(thinwire completion bash)\n"
                "  thinwire completion zsh > ~/.zsh/_thinwire    # a folder of fpath\n",
    .least_arguments = 1,
    .most_arguments = 1,
    .word = shell,
};

static int completion_run(void *settings, options *set)
{
    const char *name = set->arguments[0];
    (void)settings;
    if (strcmp(name, "bash") == 0)
        fputs(for_bash, stdout);
    else if (strcmp(name, "zsh") == 0)
        fputs(for_zsh, stdout);
    else
        return words_refuse("script for the shell", name, strlen(name), shell), launcher_refuse();
    return EXIT_DONE;
}

int command_completion(int argc, char **argv)
{
    return command_run(&page, argc, argv, NULL, completion_run);
}
