/* cut.h - how a net runs as a stage: for net.c. */
#ifndef NN_CUT_H
#define NN_CUT_H

#include "layer.h"

/* When the net is complete: lists its units. */
tw_status nn_cut_list(nn_net *net);
void nn_cut_free(nn_net *net);

/* Before the first layer, and after it on the way back. They do nothing where the net begins there. */
tw_status nn_cut_receive(nn_net *net);
tw_status nn_cut_send_back(nn_net *net);

#endif
