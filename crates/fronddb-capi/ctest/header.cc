// The header is clean C++: compiled with warnings as errors, and its inline functions used.
#include "frond.h"

int use_of_the_header();

int use_of_the_header()
{
  const unsigned char packed[16] = {0};
  frond_row row;
  const frond_slice slice = frond_bytes(packed, sizeof packed);
  frond_txn_options options = frond_txn_options();
  options.isolation = FROND_ISOLATION_SERIALIZABLE;
  return frond_fetch_row(slice.data, &row) == packed + 8 && options.lock_wait_ms == FROND_WAIT_DEFAULT ? FROND_OK
                                                                                                       : FROND_INTERNAL;
}
