/* commands.h - the subcommands: one file each, one row each in main.c. */
#ifndef TRAINER_COMMANDS_H
#define TRAINER_COMMANDS_H

/* Each gets the words after its own name and returns the program's exit code. */
int command_train(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_demo(int argc, char **argv);
int command_doctor(int argc, char **argv);

#endif
