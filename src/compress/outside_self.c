/* What all forms of a scheme from outside do alike: they call what its author wrote, if it is there. */
#include "outside.h"

tw_status tw_outside_create(tw_scheme *scheme)
{
    const tw_scheme_definition *definition = tw_outside_definition(scheme);
    return definition->create ? definition->create(tw_outside_self(scheme), scheme) : TW_OK;
}

void tw_outside_destroy(const tw_scheme *scheme)
{
    const tw_scheme_definition *definition = tw_outside_definition(scheme);
    if (definition->destroy) definition->destroy(tw_outside_self(scheme));
}

void tw_outside_revert(tw_scheme *scheme)
{
    const tw_scheme_definition *definition = tw_outside_definition(scheme);
    if (definition->revert) definition->revert(tw_outside_self(scheme), scheme);
}

tw_status tw_outside_walk(tw_scheme *scheme, tw_walk *walk)
{
    const tw_scheme_definition *definition = tw_outside_definition(scheme);
    return definition->walk ? definition->walk(tw_outside_self(scheme), scheme, walk) : TW_OK;
}
