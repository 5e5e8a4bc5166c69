// Which token is drawn. Shares are whole numbers, so that their sums have no order: every target
// draws the same token, but for logits whose share is a rounding of exp from the border.
//
//   share(token) = round(2^40 exp((logit - largest) / temperature)); of what is no number 0
//   Tokens are ordered by their logits, the largest first, then by their ids. Of these remain: the
//   first top_k (below 1: all); of them the fewest that have top_p of their shares together (from 1
//   on: all); and of them those with min_p of the largest share.
//   Drawn is the first by id with which the sum of shares is above number * (sum of all).
//
// At a temperature that is not above 0 it is the first in the order. The largest always remains.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// Numbers of a choice, in this order.
struct TokenChoice {
  float temperature = 0, top_k = 0, top_p = 1, min_p = 0;
  float number = 0;  // of [0, 1)
};
inline constexpr int64_t kChoiceNumbers = 5;

inline constexpr double kWholeShare = 0x1p40;  // of the largest: a sum of 2^20 has 60 bits
// Further below the largest, by the temperature, a share is 0.
inline constexpr double kLeastLogit = -29;

// How many of the logits are of tokens.
int64_t usable_tokens(const OpCall& call);

}  // namespace adjoint
