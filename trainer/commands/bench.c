/* thinwire bench: figures beside their limits, measured in one run. */
#include "bench.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} benches[] = {
    {"codec", "one step of a compression scheme beside streaming the memory it must touch", bench_codec},
    {"train", "training steps a second of a network, one thread", bench_train},
};
enum { BENCHES = sizeof benches / sizeof *benches };

static void print_help(FILE *stream)
{
    fprintf(stream, "usage: thinwire bench WHAT [options]     thinwire bench WHAT --help for its options\n\n");
    for (size_t i = 0; i < BENCHES; i++) fprintf(stream, "  %-8s %s\n", benches[i].name, benches[i].summary);
}

int command_bench(int argc, char **argv)
{
    if (argc < 1) {
        print_help(stderr);
        return 2;
    }
    for (size_t i = 0; i < BENCHES; i++)
        if (strcmp(argv[0], benches[i].name) == 0) return benches[i].run(argc - 1, argv + 1);
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        print_help(stdout);
        return 0;
    }
    fprintf(stderr, "thinwire: unknown bench '%s'; there are: codec, train\n", argv[0]);
    return 2;
}
