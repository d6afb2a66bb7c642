/* answer.h - what a web server says that does not do what it is asked to, and what would be right. */
#ifndef TW_COMM_FOLDER_ANSWER_H
#define TW_COMM_FOLDER_ANSWER_H

#include "store.h"

enum { ANSWER_WORD = 64, ANSWER_BODY = 1024 };

typedef struct answer {
    long code;              /* 0: there is none */
    char body[ANSWER_BODY]; /* its beginning, with a 0 behind it */
    char region[ANSWER_WORD] /* that its headers name, or "" */, date[ANSWER_WORD];
} answer;

/* Whether that is what the body of a store of objects calls it, such as "NoSuchBucket". */
int answer_is(const answer *said, const char *name);
/* "the server answers 403 ...". Nothing of it but words of letters, digits, "-" and "_", and the date. */
void answer_explain(const answer *said, char reason[STORE_REASON]);

#endif
