// A .model file of SentencePiece, by its library: byte pairs or unigrams, with the normalizer that
// the file holds.
#pragma once
#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace adjoint {

// Of the bytes of a .model file; throws an Error that says what is wrong with them.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model);

}  // namespace adjoint
