/* main.c - the program thinwire: finds the subcommand and gives it the rest of the line. */
#include "commands.h"
#include <string.h>
#include <sys/resource.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static const command commands[] = {
    {"demo", "the main job: real images, four workers, dense against compressed", command_demo},
    {"train", "train a network on several workers", command_train},
    {"generate", "text from a language model that was trained", command_generate},
    {"transcribe", "text from recorded speech, by a recogniser that was trained", command_transcribe},
    {"simulate", "the same training on workers and over a network there are not", command_simulate},
    {"schemes", "the ways to exchange gradients, and their options", command_schemes},
    {"bench", "figures beside their limits: compression, training steps", command_bench},
    {"doctor", "what this machine offers: instruction set, memory, oneDNN, MPI, data", command_doctor},
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

static int run(int argc, char **argv)
{
    if (argc == 2 && asks_for_version(argv[1])) {
        printf("thinwire %s\n", tw_version());
        return 0;
    }
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
    spare_addresses();
    return command_end(run(argc, argv));
}
