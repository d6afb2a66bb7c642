/* exit.h - what the program ends with. */
#ifndef TRAINER_EXIT_H
#define TRAINER_EXIT_H

enum { EXIT_DONE = 0, EXIT_INPUT = 2, EXIT_PEER_LOST = 3, EXIT_DIVERGED = 4, EXIT_INTERRUPTED = 130 };

#endif
