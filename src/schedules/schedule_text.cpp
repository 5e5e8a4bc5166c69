// Grammar:
//   file  = "schedule" name "(" "stages" "=" number "," "parts" "=" number [ "," "chunks" "="
//   number ] ")" ":" newline
//           { indented list }
//   list  = "rank" number ":" { slot }            slots go on in the lines that follow
//   slot  = ( "F" | "B" | "W" ) part [ "." chunk ]
// Stages are ranks; chunks are those of the whole model, one per stage unless said. Where there is
// one per stage, a slot without a chunk is of the rank's own: chunk 0 of rank 0, chunk 1 of rank 1.
// For example:
//   schedule mine(stages = 2, parts = 3):
//     rank 0: F0 F1 B0 F2 B1 B2
//     rank 1: F0 B0 F1 B1 F2 B2
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "schedules/schedule.h"
#include "schedules/walk.h"
#include "scheme/cursor.h"

namespace adjoint {

namespace {

constexpr int kMostOfAHead = 1'000'000;  // stages, parts and chunks; no pipeline is near it

class ScheduleParser {
 public:
  ScheduleParser(std::string_view text, std::string_view file) : in_(text, file) {}

  Schedule parse() {
    in_.skip_blank_lines();
    const Position begin = in_.position();
    if (!in_.accept_word("schedule")) in_.fail_wanted("'schedule' to begin a schedule");
    result_.name = in_.take_run("", "the name of the schedule");
    head();
    in_.expect(":", "after the head of a schedule");
    in_.expect_line_end();
    lists();
    if (const auto fault = walk(result_, true, nullptr)) {
      Position at = begin;
      if (fault->rank >= 0) {
        const auto& places = places_[static_cast<size_t>(fault->rank)];
        at = fault->at < 0 ? ranks_[static_cast<size_t>(fault->rank)]
                           : places[static_cast<size_t>(fault->at)];
      }
      in_.fail_at(at, fault->message);
    }
    return std::move(result_);
  }

 private:
  void head() {
    in_.expect("(", "and the sizes of the schedule");
    in_.open_bracket();
    result_.ranks = size("stages");
    in_.expect(",", "and the number of parts");
    result_.parts = size("parts");
    result_.chunks = in_.accept(",") ? size("chunks") : result_.ranks;
    in_.close_bracket();
    in_.expect(")", "after the sizes of the schedule");
  }

  int size(std::string_view word) {
    if (!in_.accept_word(word)) in_.fail_wanted("'" + std::string(word) + "'");
    in_.expect("=", "and a number");
    in_.skip_blank();
    const Position at = in_.position();
    const int64_t number = in_.take_integer("a number of " + std::string(word));
    if (number < 1 || number > kMostOfAHead) {
      in_.fail_at(at, join_parts(word, " must be 1 to ", kMostOfAHead, ", found ", number));
    }
    return static_cast<int>(number);
  }

  void lists() {
    const size_t ranks = static_cast<size_t>(result_.ranks);
    result_.lists.resize(ranks);
    places_.resize(ranks);
    ranks_.resize(ranks);
    std::vector<bool> listed(ranks, false);
    int rank = -1;
    for (in_.skip_blank_lines(); !in_.at_end(); in_.skip_blank_lines()) {
      const Position at = in_.position();
      if (at.column == 1) in_.fail_at(at, "wanted an indented list of a rank");
      if (in_.accept_word("rank")) {
        rank = rank_number();
        if (listed[static_cast<size_t>(rank)]) {
          in_.fail_at(at, join_parts("rank ", rank, " has a list already"));
        }
        listed[static_cast<size_t>(rank)] = true;
        ranks_[static_cast<size_t>(rank)] = at;
        in_.expect(":", "after the number of the rank");
      } else if (rank < 0) {
        in_.fail_wanted("'rank'");
      }
      while (!in_.at_line_end()) slot(rank);
    }
    const auto missing = std::find(listed.begin(), listed.end(), false);
    if (missing != listed.end()) {
      in_.fail_wanted(join_parts("the list of rank ", missing - listed.begin()));
    }
  }

  int rank_number() {
    in_.skip_blank();
    const Position at = in_.position();
    const int64_t number = in_.take_integer("the number of a rank");
    if (number < 0 || number >= result_.ranks) {
      in_.fail_at(at, join_parts("there are ranks 0 to ", result_.ranks - 1, ", found ", number));
    }
    return static_cast<int>(number);
  }

  void slot(int rank) {
    in_.skip_blank();
    const Position at = in_.position();
    const std::string word = in_.take_run(".", kWanted);
    constexpr std::string_view kLetters = "FBW";
    const size_t kind = kLetters.find(word[0]);
    const size_t dot = std::min(word.find('.'), word.size());
    Slot slot;
    const bool good = kind != std::string_view::npos && number(word, 1, dot, slot.part) &&
                      (dot == word.size() ? own_chunk(rank, slot.chunk, at)
                                          : number(word, dot + 1, word.size(), slot.chunk));
    if (!good) in_.fail_at(at, join_parts("wanted ", kWanted, ", found '", word, "'"));
    slot.kind = static_cast<SlotKind>(kind);
    result_.lists[static_cast<size_t>(rank)].push_back(slot);
    places_[static_cast<size_t>(rank)].push_back(at);
  }

  bool own_chunk(int rank, int& chunk, Position at) const {
    if (result_.chunks != result_.ranks) {
      in_.fail_at(at, join_parts("wanted part and chunk, such as F0.1: ", result_.ranks,
                                 " ranks hold ", result_.chunks, " chunks"));
    }
    chunk = rank;
    return true;
  }

  static bool number(const std::string& word, size_t begin, size_t end, int& result) {
    const char* past = word.data() + end;
    const auto [stop, error] = std::from_chars(word.data() + begin, past, result);
    return error == std::errc() && stop == past;
  }

  static constexpr std::string_view kWanted = "a slot such as F0, B0 or W0.1";
  Cursor in_;
  Schedule result_;
  std::vector<std::vector<Position>> places_;  // of the slots
  std::vector<Position> ranks_;                // of the word 'rank' of each list
};

}  // namespace

Schedule parse_schedule(std::string_view text, std::string_view file) {
  return ScheduleParser(text, file).parse();
}

std::string print(const Schedule& schedule) {
  std::string text = join_parts("schedule ", schedule.name, "(stages = ", schedule.ranks,
                                ", parts = ", schedule.parts);
  if (schedule.chunks != schedule.ranks) text += join_parts(", chunks = ", schedule.chunks);
  text += "):\n";
  for (size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    text += "  rank " + std::to_string(rank) + ":";
    for (const Slot& slot : schedule.lists[rank]) {
      std::string word = to_string(slot);
      const bool own = schedule.chunks == schedule.ranks && slot.chunk == static_cast<int>(rank);
      if (own) word.resize(word.find('.'));
      text += " " + word;
    }
    text += "\n";
  }
  return text;
}

}  // namespace adjoint
