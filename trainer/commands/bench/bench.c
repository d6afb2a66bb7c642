/* thinwire bench: figures beside their limits, measured in one run. */
#include "bench.h"
#include "commands.h"

static const command benches[] = {
    {"codec", "Time one step of a compression scheme", bench_codec},
    {"train", "Time training steps of a network, on one thread", bench_train},
};

static const command_list list = {
    .usage = "thinwire bench WHAT",
    .description = "Measures speed, and prints it beside the limit of the machine, measured in the same run.",
    .commands = benches,
    .count = sizeof benches / sizeof *benches,
};

int command_bench(int argc, char **argv)
{
    return command_choose(&list, argc, argv);
}
