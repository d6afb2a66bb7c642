/* doctor_line.h - thinwire doctor HOST:PORT, and --listen at the other end. */
#ifndef TRAINER_DOCTOR_LINE_H
#define TRAINER_DOCTOR_LINE_H

typedef struct doctor_line_settings {
    const char *target;     /* HOST:PORT */
    const char *parameters; /* whose exchange is told of, as --parameters of thinwire simulate */
    double timeout;
    const char *json; /* NULL: none */
} doctor_line_settings;

/* Says what is known of the way to the target, and, where thinwire doctor --listen is there, measures the line. The
 * program's exit code: EXIT_PEER_LOST where nobody can be reached. */
int doctor_line(const doctor_line_settings *settings);

/* Waits for the other end, for up to an hour, measures the line with it once, and ends. */
int doctor_listen(int port, double timeout);

#endif
