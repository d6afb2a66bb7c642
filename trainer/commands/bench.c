/* thinwire bench: figures beside their limits, measured in one run. */
#include "bench.h"
#include "commands.h"

static const command benches[] = {
    {"codec", "one step of a compression scheme beside streaming the memory it must touch", bench_codec},
    {"train", "training steps a second of a network, one thread", bench_train},
};

static const command_list list = {
    .usage = "thinwire bench WHAT",
    .description = "Figures beside their limits, measured in one run.",
    .commands = benches,
    .count = sizeof benches / sizeof *benches,
};

int command_bench(int argc, char **argv)
{
    return command_choose(&list, argc, argv);
}
