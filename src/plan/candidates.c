#include "candidates.h"

#define EXACT                                                                                                          \
    {                                                                                                                  \
        0, 0, "exact", "schemes.md"                                                                                    \
    }
#define LIKE_DENSE(steps, page)                                                                                        \
    {                                                                                                                  \
        steps, 0, "as dense", page                                                                                     \
    }
#define UNKNOWN                                                                                                        \
    {                                                                                                                  \
        0                                                                                                              \
    }

/* With adapters. */
#define LIKE_DENSE_THERE                                                                                               \
    {                                                                                                                  \
        300, 0, "as dense with adapters", "planning.md"                                                                \
    }
#define MORE_THERE(percent)                                                                                            \
    {                                                                                                                  \
        300, (percent) / 100.0, #percent " % more steps with adapters", "planning.md"                                  \
    }

/* docs/planning.md says how a share of steps comes of what runs have reached. */
static const tw_candidate candidates[] = {
    {"allreduce", EXACT, EXACT, EXACT},
    {"bf16", LIKE_DENSE(3905, "schemes.md"), LIKE_DENSE(600, "planning.md"), LIKE_DENSE_THERE},
    {"fp8", LIKE_DENSE(1000, "planning.md"), LIKE_DENSE(600, "planning.md"), MORE_THERE(2)},
    {"qsgd", LIKE_DENSE(3905, "schemes.md"), LIKE_DENSE(600, "planning.md"), MORE_THERE(5)},
    {"powersgd:rank=16", LIKE_DENSE(4685, "schemes.md"), LIKE_DENSE(600, "planning.md"), UNKNOWN},
    {"dgc", LIKE_DENSE(300, "schemes.md"), UNKNOWN, UNKNOWN},
    {"dgc-adam", UNKNOWN, LIKE_DENSE(600, "planning.md"), LIKE_DENSE_THERE},
    {"dgc-adam:density=0.01,warmup_density=0.1",
     UNKNOWN,
     {600, 0.16, "16 % more steps on pictures", "planning.md"},
     MORE_THERE(3)},
    {"adpsgd-random", {4685, 0, "0.1 points less", "training.md"}, UNKNOWN, UNKNOWN},
    {"diloco:every=20",
     {1000, 0.08, "8 % more steps", "planning.md"},
     {600, 0.62, "62 % more steps", "planning.md"},
     MORE_THERE(4)},
    {"diloco:every=50",
     {1000, 0.15, "15 % more steps", "planning.md"},
     {600, 1.02, "102 % more steps", "planning.md"},
     MORE_THERE(13)},
    {"streaming:every=20,fragments=2", UNKNOWN, {600, 0.89, "89 % more steps", "planning.md"}, UNKNOWN},
    {"sparseloco:every=20,k=256,agg=senders", UNKNOWN, {3000, 0.75, "75 % more steps", "planning.md"}, MORE_THERE(30)},
};

const tw_candidate *tw_candidate_at(size_t index)
{
    return index < sizeof candidates / sizeof *candidates ? &candidates[index] : NULL;
}

int tw_candidate_is_known(const tw_candidate_cost *cost, double steps)
{
    return cost->seen && steps >= cost->steps;
}
