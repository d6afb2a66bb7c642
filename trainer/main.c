/* main.c - the program thinwire: finds the subcommand and gives it the rest of the line. */
#include "commands.h"
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static const command commands[] = {
    {"demo", "Compare dense and compressed training on real images, with four workers", command_demo},
    {"train", "Train a network on several workers", command_train},
    {"predict", "Ask a trained network about files", command_predict},
    {"generate", "Let a trained language model write text", command_generate},
    {"transcribe", "Write down what is said in recordings", command_transcribe},
    {"export", "Write a trained network to a file for PyTorch", command_export},
    {"report", "Draw the curves and figures of runs on one page", command_report},
    {"plan", "Say which way of exchanging suits a network, an optimiser and a line", command_plan},
    {"simulate", "Predict training on machines and networks that you do not have", command_simulate},
    {"tasks", "List what can be trained", command_tasks},
    {"models", "List the networks that can be trained", command_models},
    {"schemes", "List the ways to exchange gradients or weights, and their options", command_schemes},
    {"check-scheme", "Check that a scheme of your own keeps what every scheme promises", command_check_scheme},
    {"bench", "Measure the speed of compression and of training", command_bench},
    {"doctor", "Examine this machine, or the network between machines", command_doctor},
    {"completion", "Print a script that completes commands in bash or zsh", command_completion},
};

static const command_list list = {
    .usage = "thinwire COMMAND",
    .description = "thinwire trains networks over thin wires: workers exchange compressed gradients.",
    .commands = commands,
    .count = sizeof commands / sizeof *commands,
};

static int asks_for_version(const char *word)
{
    return strcmp(word, "version") == 0 || strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0;
}

/* Words before a command that ask for its page. The second and third are for the build and for shells. */
static const struct {
    const char *name;
    int (*print)(const command_list *list, int argc, char **argv);
} pages[] = {{"help", command_help}, {"manual", command_manual}, {"complete", command_complete}};

static int main_run(int argc, char **argv)
{
    if (argc == 2 && asks_for_version(argv[1])) {
        printf("thinwire %s\n", tw_version());
        return 0;
    }
    for (size_t i = 0; argc > 2 && i < sizeof pages / sizeof *pages; i++)
        if (strcmp(argv[1], pages[i].name) == 0) return pages[i].print(&list, argc - 2, argv + 2);
    if (argc == 2 && strcmp(argv[1], "manual") == 0) return command_manual(&list, 0, NULL);
    return command_choose(&list, argc - 1, argv + 1);
}

/* glibc sets 64 MiB of addresses aside for each thread that allocates. Where addresses are limited, another thread
 * would lack them. */
static void spare_addresses(void)
{
#ifdef __GLIBC__
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
#endif
}

int main(int argc, char **argv)
{
    /* A file that may not grow is then a write that fails, which is told, instead of a process that dies. */
    signal(SIGXFSZ, SIG_IGN);
    spare_addresses();
    return command_end(main_run(argc, argv));
}
