/* main.c - the program thinwire: finds the subcommand and gives it the rest of the line. */
#include "commands.h"
#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire.h>

typedef struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"demo", "the main job: real images, four workers, dense against compressed", command_demo},
    {"train", "train a network on several workers", command_train},
    {"bench", "figures beside their limits: compression, training steps", command_bench},
    {"doctor", "what this machine offers: instruction set, memory, oneDNN, MPI, data", command_doctor},
};

static void print_help(FILE *stream)
{
    fprintf(stream,
            "thinwire %s trains networks over thin wires: workers exchange compressed gradients.\n\n"
            "usage: thinwire COMMAND [options]     thinwire COMMAND --help for its options\n\n",
            tw_version());
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(stream, "  %-10s %s\n", commands[i].name, commands[i].summary);
}

static int is_any(const char *word, const char *first, const char *second, const char *third)
{
    return strcmp(word, first) == 0 || strcmp(word, second) == 0 || strcmp(word, third) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
    if (is_any(argv[1], "help", "--help", "-h")) {
        print_help(stdout);
        return 0;
    }
    if (is_any(argv[1], "version", "--version", "-V")) {
        printf("thinwire %s\n", tw_version());
        return 0;
    }
    fprintf(stderr, "thinwire: unknown command '%s'; thinwire --help lists them\n", argv[1]);
    return 2;
}
