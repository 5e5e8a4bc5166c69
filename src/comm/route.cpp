#include "comm/route.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"

namespace adjoint {

namespace {

// Of a minimum spanning tree: `from` holds what the ranks [first, last) want, and `to` is theirs.
struct Edge {
  int from = 0, to = 0, first = 0, last = 0;
};

// The edges of each depth. A range of ranks is halved; its root serves its own half, and gives the
// other half to the rank there that is farthest from the root, which is its root from then on. So
// segments of a half always lie side by side, whatever the root.
std::vector<std::vector<Edge>> spanning_tree(int root, int ranks) {
  struct Range {
    int first, last, root;
  };
  std::vector<std::vector<Edge>> levels;
  std::vector<Range> ranges = {{0, ranks, root}};
  while (true) {
    std::vector<Edge> edges;
    std::vector<Range> halves;
    for (const Range& range : ranges) {
      if (range.last - range.first == 1) {
        halves.push_back(range);
        continue;
      }
      const int middle = (range.first + range.last) / 2;
      const bool left = range.root < middle;
      const int other = left ? range.last - 1 : range.first;
      const Range mine{left ? range.first : middle, left ? middle : range.last, range.root};
      const Range theirs{left ? middle : range.first, left ? range.last : middle, other};
      edges.push_back({range.root, other, theirs.first, theirs.last});
      halves.push_back(mine);
      halves.push_back(theirs);
    }
    if (edges.empty()) return levels;
    levels.push_back(std::move(edges));
    ranges = std::move(halves);
  }
}

// Terms of a segment that are under way at the same time. Their sum is made while they are in the
// cache, and a message of this size takes far longer than its latency.
constexpr int64_t kExchangedAtOnce = 1 << 20;

// Between those of the engines: 12 us and 2.9 GB/s, 34 us and 1.6 GB/s (comm/threads.cpp, mpi.cpp).
constexpr Fabric kUsualFabric{
    .latency = 20e-6, .seconds_per_byte = 4.5e-10, .seconds_per_term = 1e-10};

// Writes the rounds of one rank.
class Router {
 public:
  explicit Router(const RouteRequest& request) : q_(request) {}

  Route route() {
    if (q_.ranks == 1) {
      alone();
    } else {
      write();
    }
    return std::move(route_);
  }

 private:
  // --- Pieces of memory ---
  int64_t begin_of(int i) const {
    if (q_.segment > 0) return i == q_.ranks ? q_.whole : std::min(i * q_.segment, q_.whole);
    return segment_begin(q_.whole, q_.element, q_.ranks, i);
  }
  RouteRegion range(RoutePiece piece, int first, int last) const {
    return {piece, begin_of(first), begin_of(last) - begin_of(first)};
  }
  RouteRegion segment(RoutePiece piece, int i) const { return range(piece, i, i + 1); }
  RouteRegion all(RoutePiece piece) const { return {piece, 0, q_.whole}; }
  // The memory that holds one segment alone.
  RouteRegion lone(RoutePiece piece) const { return {piece, 0, segment(piece, q_.rank).size}; }
  // The whole vector of rank i, in a scratch that has room for all ranks'.
  RouteRegion vector_of(int i) const { return {RoutePiece::kScratch, i * q_.whole, q_.whole}; }
  int next(int by) const { return (q_.rank + by + q_.ranks) % q_.ranks; }

  RouteRound& round() { return route_.rounds.emplace_back(); }
  void want_scratch(int64_t size) { route_.scratch = std::max(route_.scratch, Bytes{size}); }

  // What remains of each collective for one rank: a copy.
  void alone() {
    if (q_.collective == Collective::kBroadcast || q_.collective == Collective::kBarrier) return;
    round().copies.push_back({all(RoutePiece::kIn), all(RoutePiece::kOut)});
  }

  void write() {
    switch (q_.collective) {
      case Collective::kBroadcast:
        return broadcast();
      case Collective::kScatter:
        return q_.algorithm == Algorithm::kTree ? tree_scatter(RoutePiece::kIn, true)
                                                : flat_scatter();
      case Collective::kGather:
        return q_.algorithm == Algorithm::kTree ? tree_gather() : flat_gather();
      case Collective::kAllGather:
        round().copies.push_back({lone(RoutePiece::kIn), segment(RoutePiece::kOut, q_.rank)});
        return spread(RoutePiece::kOut);
      case Collective::kReduceScatter:
        return reduce(false);
      case Collective::kAllReduce:
        return reduce(true);
      case Collective::kAllToAll:
        return all_to_all();
      case Collective::kBarrier:
        return barrier();
    }
  }

  // --- Trees ---
  void tree_broadcast(RoutePiece piece, int root) {
    for (const auto& level : spanning_tree(root, q_.ranks)) {
      RouteRound& r = round();
      for (const Edge& edge : level) {
        if (edge.from == q_.rank) r.messages.push_back({edge.to, true, all(piece)});
        if (edge.to == q_.rank) r.messages.push_back({edge.from, false, all(piece)});
      }
    }
  }

  // The root's segments lie in `piece`. Others keep what they pass on in the scratch, or in place
  // (a broadcast, whose `out` has room for all).
  void tree_scatter(RoutePiece piece, bool lone_result) {
    const RoutePiece kept = lone_result ? RoutePiece::kScratch : piece;
    RoutePiece held = q_.rank == q_.root ? piece : kept;
    for (const auto& level : spanning_tree(q_.root, q_.ranks)) {
      RouteRound& r = round();
      for (const Edge& edge : level) {
        if (edge.from == q_.rank) {
          r.messages.push_back({edge.to, true, range(held, edge.first, edge.last)});
        }
        if (edge.to == q_.rank) {
          r.messages.push_back({edge.from, false, range(kept, edge.first, edge.last)});
          if (lone_result) want_scratch(begin_of(edge.last));
        }
      }
    }
    if (lone_result) round().copies.push_back({segment(held, q_.rank), lone(RoutePiece::kOut)});
  }

  void tree_gather() {
    const RoutePiece held = q_.rank == q_.root ? RoutePiece::kOut : RoutePiece::kScratch;
    round().copies.push_back({lone(RoutePiece::kIn), segment(held, q_.rank)});
    if (held == RoutePiece::kScratch) want_scratch(begin_of(q_.rank + 1));
    const auto levels = spanning_tree(q_.root, q_.ranks);
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      RouteRound& r = round();
      for (const Edge& edge : *level) {
        const RouteRegion region = range(held, edge.first, edge.last);
        if (edge.to == q_.rank) r.messages.push_back({edge.from, true, region});
        if (edge.from == q_.rank) r.messages.push_back({edge.to, false, region});
        if (edge.to == q_.rank) want_scratch(begin_of(edge.last));
      }
    }
  }

  // --- Direct ---
  void flat_scatter() {
    RouteRound& r = round();
    if (q_.rank != q_.root) {
      r.messages.push_back({q_.root, false, lone(RoutePiece::kOut)});
      return;
    }
    r.copies.push_back({segment(RoutePiece::kIn, q_.rank), lone(RoutePiece::kOut)});
    for (int by = 1; by < q_.ranks; ++by) {
      r.messages.push_back({next(by), true, segment(RoutePiece::kIn, next(by))});
    }
  }

  void flat_gather() {
    RouteRound& r = round();
    if (q_.rank != q_.root) {
      r.messages.push_back({q_.root, true, lone(RoutePiece::kIn)});
      return;
    }
    r.copies.push_back({lone(RoutePiece::kIn), segment(RoutePiece::kOut, q_.rank)});
    for (int by = 1; by < q_.ranks; ++by) {
      r.messages.push_back({next(by), false, segment(RoutePiece::kOut, next(by))});
    }
  }

  void all_to_all() {
    RouteRound& r = round();
    r.copies.push_back({segment(RoutePiece::kIn, q_.rank), segment(RoutePiece::kOut, q_.rank)});
    for (int by = 1; by < q_.ranks; ++by) {  // everyone begins with another rank
      r.messages.push_back({next(by), true, segment(RoutePiece::kIn, next(by))});
      r.messages.push_back({next(-by), false, segment(RoutePiece::kOut, next(-by))});
    }
  }

  // --- All ranks' segments to all ranks: this rank's is in its place already ---
  void spread(RoutePiece piece) {
    switch (q_.algorithm) {
      case Algorithm::kExchange: {
        RouteRound& r = round();
        for (int by = 1; by < q_.ranks; ++by) {
          r.messages.push_back({next(by), true, segment(piece, q_.rank)});
          r.messages.push_back({next(-by), false, segment(piece, next(-by))});
        }
        return;
      }
      case Algorithm::kRing:
        for (int by = 0; by < q_.ranks - 1; ++by) {
          RouteRound& r = round();
          r.messages.push_back({next(1), true, segment(piece, next(-by))});
          r.messages.push_back({next(-1), false, segment(piece, next(-by - 1))});
        }
        return;
      case Algorithm::kTree: {
        const auto levels = spanning_tree(0, q_.ranks);
        for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
          RouteRound& r = round();
          for (const Edge& edge : *level) {
            const RouteRegion region = range(piece, edge.first, edge.last);
            if (edge.to == q_.rank) r.messages.push_back({edge.from, true, region});
            if (edge.from == q_.rank) r.messages.push_back({edge.to, false, region});
          }
        }
        return tree_broadcast(piece, 0);
      }
      case Algorithm::kDoubling:
        return doubling([&](int i) { return segment(piece, i); });
    }
  }

  // Holding the segments of `held` ranks from its own on, a rank gets as many more from the rank
  // that holds those behind them. Segments go round the end, and are sent as the runs that they
  // are.
  template <class SegmentOf>
  void doubling(const SegmentOf& segment_of) {
    for (int held = 1; held < q_.ranks; held *= 2) {
      const int more = std::min(held, q_.ranks - held);
      RouteRound& r = round();
      send_runs(r, next(-held), true, q_.rank, more, segment_of);
      send_runs(r, next(held), false, next(held), more, segment_of);
    }
  }

  template <class SegmentOf>
  void send_runs(RouteRound& r, int peer, bool sends, int first, int count,
                 const SegmentOf& segment_of) {
    const auto run = [&](int from, int to) {
      RouteRegion region = segment_of(from);
      const RouteRegion end = segment_of(to - 1);
      region.size = end.begin + end.size - region.begin;
      r.messages.push_back({peer, sends, region});
    };
    const int end = std::min(first + count, q_.ranks);
    run(first, end);
    if (first + count > q_.ranks) run(0, first + count - q_.ranks);
  }

  void broadcast() {
    switch (q_.algorithm) {
      case Algorithm::kTree:
        return tree_broadcast(RoutePiece::kOut, q_.root);
      case Algorithm::kExchange: {
        RouteRound& r = round();
        if (q_.rank != q_.root) {
          r.messages.push_back({q_.root, false, all(RoutePiece::kOut)});
          return;
        }
        for (int by = 1; by < q_.ranks; ++by) {
          r.messages.push_back({next(by), true, all(RoutePiece::kOut)});
        }
        return;
      }
      case Algorithm::kRing:
      case Algorithm::kDoubling:  // a scatter, and then everyone has something to give
        tree_scatter(RoutePiece::kOut, false);
        return spread(RoutePiece::kOut);
    }
  }

  // --- Reductions ---
  // The terms of `of` where all ranks' vectors lie in the scratch, except for this rank's own.
  std::vector<RouteRegion> terms(RouteRegion of) const {
    std::vector<RouteRegion> found;
    for (int i = 0; i < q_.ranks; ++i) {
      found.push_back(
          i == q_.rank ? of : RouteRegion{RoutePiece::kScratch, i * q_.whole + of.begin, of.size});
    }
    return found;
  }

  void reduce(bool for_all) {
    const RouteRegion mine = for_all ? segment(RoutePiece::kOut, q_.rank) : lone(RoutePiece::kOut);
    switch (q_.algorithm) {
      case Algorithm::kDoubling: {  // everyone gets everything, and adds what it needs
        want_scratch(q_.ranks * q_.whole);
        round().copies.push_back({all(RoutePiece::kIn), vector_of(q_.rank)});
        doubling([&](int i) { return vector_of(i); });
        RouteRound& last = route_.rounds.back();
        const RouteRegion of = for_all ? all(RoutePiece::kIn) : segment(RoutePiece::kIn, q_.rank);
        last.terms = terms(of);
        last.result = for_all ? all(RoutePiece::kOut) : mine;
        return;
      }
      case Algorithm::kTree:
        return tree_reduce(for_all);
      case Algorithm::kExchange:
      case Algorithm::kRing: {
        // Segment `rank` of everyone comes here, side by side in the scratch.
        const int64_t longest = longest_segment();
        const int64_t most = std::max(kExchangedAtOnce / q_.element, int64_t{1}) * q_.element;
        int64_t begin = 0;
        do {  // a round also where there is nothing: all ranks have as many
          exchange_terms(mine, begin, std::min(longest, most));
          begin += most;
        } while (begin < longest);
        if (for_all) spread(RoutePiece::kOut);
        return;
      }
    }
  }

  int64_t longest_segment() const {
    int64_t longest = 0;
    for (int i = 0; i < q_.ranks; ++i) longest = std::max(longest, begin_of(i + 1) - begin_of(i));
    return longest;
  }

  // One round of an exchange: `size` bytes of each segment from `begin` on. Segments that are
  // shorter take part with what they have.
  void exchange_terms(const RouteRegion& mine, int64_t begin, int64_t size) {
    const auto part = [&](RouteRegion region) {
      const int64_t first = std::min(begin, region.size);
      return RouteRegion{region.piece, region.begin + first, std::min(size, region.size - first)};
    };
    RouteRound& r = round();
    r.result = part(mine);
    const auto slot = [&](int i) {
      return RouteRegion{RoutePiece::kScratch, (i < q_.rank ? i : i - 1) * size, r.result.size};
    };
    want_scratch((q_.ranks - 1) * size);
    for (int by = 1; by < q_.ranks; ++by) {
      r.messages.push_back({next(by), true, part(segment(RoutePiece::kIn, next(by)))});
      r.messages.push_back({next(-by), false, slot(next(-by))});
    }
    for (int i = 0; i < q_.ranks; ++i) {
      r.terms.push_back(i == q_.rank ? part(segment(RoutePiece::kIn, i)) : slot(i));
    }
  }

  // Rank 0 gathers all vectors, reduces them, and gives the result back.
  void tree_reduce(bool for_all) {
    const int root = 0;
    const auto levels = spanning_tree(root, q_.ranks);
    RouteRegion held = vector_of(q_.rank);
    round().copies.push_back({all(RoutePiece::kIn), held});
    want_scratch((q_.rank + 1) * q_.whole);
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      RouteRound& r = round();
      for (const Edge& edge : *level) {
        const RouteRegion region{RoutePiece::kScratch, edge.first * q_.whole,
                                 (edge.last - edge.first) * q_.whole};
        if (edge.to == q_.rank) r.messages.push_back({edge.from, true, region});
        if (edge.from == q_.rank) r.messages.push_back({edge.to, false, region});
        if (edge.to == q_.rank || edge.from == q_.rank) want_scratch(edge.last * q_.whole);
      }
    }
    const RoutePiece result = for_all ? RoutePiece::kOut : RoutePiece::kScratch;
    if (q_.rank == root) {
      RouteRound& last = route_.rounds.back();
      last.terms = terms(all(RoutePiece::kIn));
      last.result = all(result);
    }
    if (for_all) return tree_broadcast(RoutePiece::kOut, root);
    const int asked = q_.root;
    q_.root = root;
    tree_scatter(RoutePiece::kScratch, true);
    q_.root = asked;
  }

  void barrier() {
    if (q_.algorithm == Algorithm::kDoubling) {
      for (int by = 1; by < q_.ranks; by *= 2) {
        round().messages = {{next(by), true, {}}, {next(-by), false, {}}};
      }
      return;
    }
    RouteRound& r = round();
    for (int by = 1; by < q_.ranks; ++by) {
      r.messages.push_back({next(by), true, {}});
      r.messages.push_back({next(-by), false, {}});
    }
  }

  RouteRequest q_;
  Route route_;
};

// Both sides of a message know its size, so neither speaks of nothing.
void drop_nothings(Route& route) {
  for (RouteRound& round : route.rounds) {
    std::erase_if(round.messages, [](const RouteMessage& m) { return m.region.size == 0; });
    std::erase_if(round.copies, [](const RouteCopy& c) { return c.from.size == 0; });
    if (round.result.size == 0) round.terms.clear();
  }
  std::erase_if(route.rounds, [](const RouteRound& round) {
    return round.messages.empty() && round.copies.empty() && round.terms.empty();
  });
}

// A walk along all ranks' routes at once, with segments of one byte each. Rounds that are empty for
// a rank are still there, so the rounds of all ranks go side by side.
RoutePrice walked_price(Collective collective, Algorithm algorithm, int ranks) {
  const bool empty = collective == Collective::kBarrier;
  std::vector<Route> routes;
  for (int rank = 0; rank < ranks; ++rank) {
    routes.push_back(Router({.collective = collective,
                             .algorithm = algorithm,
                             .rank = rank,
                             .ranks = ranks,
                             .whole = empty ? 0 : ranks})
                         .route());
  }
  RoutePrice price;
  for (size_t i = 0; i < routes[0].rounds.size(); ++i) {
    std::array<int, 2> messages = {};
    std::array<int64_t, 2> moved = {};
    int64_t reduced = 0;
    for (const Route& route : routes) {
      CHECK(route.rounds.size() == routes[0].rounds.size(), "rounds go side by side");
      std::array<int, 2> count = {};
      std::array<int64_t, 2> bytes = {};
      for (const RouteMessage& message : route.rounds[i].messages) {
        count[message.sends] += 1;
        bytes[message.sends] += message.region.size;
      }
      for (int way = 0; way < 2; ++way) {
        messages[way] = std::max(messages[way], count[way]);
        moved[way] = std::max(moved[way], bytes[way]);
      }
      const int64_t terms = static_cast<int64_t>(route.rounds[i].terms.size());
      reduced = std::max(reduced, terms * route.rounds[i].result.size);
    }
    price.messages += std::max(messages[0], messages[1]);
    price.moved += static_cast<double>(std::max(moved[0], moved[1])) / ranks;
    price.reduced += static_cast<double>(reduced) / ranks;
  }
  return price;
}

}  // namespace

std::string_view name(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kScatter:
      return "scatter";
    case Collective::kGather:
      return "gather";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBarrier:
      return "barrier";
  }
  return "";
}

std::string_view name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kExchange:
      return "exchange";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kTree:
      return "tree";
    case Algorithm::kDoubling:
      return "doubling";
  }
  return "";
}

Route make_route(const RouteRequest& request) {
  CHECK(request.rank >= 0 && request.rank < request.ranks, "a rank of the group");
  CHECK(request.root >= 0 && request.root < request.ranks, "a root of the group");
  Route route = Router(request).route();
  if (request.collective != Collective::kBarrier) drop_nothings(route);
  return route;
}

Bytes most_scratch(RouteRequest request) {
  Bytes most{0};
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    most = std::max(most, make_route(request).scratch);
  }
  return most;
}

std::span<const Algorithm> algorithms_of(Collective collective) {
  using enum Algorithm;
  static constexpr std::array kAll = {kExchange, kRing, kTree, kDoubling};
  static constexpr std::array kRooted = {kExchange, kTree};
  static constexpr std::array kReducing = {kExchange, kTree, kDoubling};
  static constexpr std::array kDirect = {kExchange};
  static constexpr std::array kSignals = {kExchange, kDoubling};
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kAllGather:
    case Collective::kAllReduce:
      return kAll;
    case Collective::kScatter:
    case Collective::kGather:
      return kRooted;
    case Collective::kReduceScatter:
      return kReducing;
    case Collective::kAllToAll:
      return kDirect;
    case Collective::kBarrier:
      return kSignals;
  }
  return {};
}

int64_t sent_bytes(const Route& route) {
  int64_t sum = 0;
  for (const RouteRound& round : route.rounds) {
    for (const RouteMessage& message : round.messages)
      sum += message.sends ? message.region.size : 0;
  }
  return sum;
}

int64_t segment_begin(int64_t whole, int64_t element, int ranks, int i) {
  // The first segments are one element longer. The end is the whole, even with a broken element.
  const int64_t elements = whole / element;
  const int64_t each = elements / ranks, longer = elements % ranks;
  return i == ranks ? whole : (each * i + std::min<int64_t>(i, longer)) * element;
}

RoutePrice price_of(Collective collective, Algorithm algorithm, int ranks) {
  static std::mutex mutex;
  static std::map<std::tuple<Collective, Algorithm, int>, RoutePrice> known;  // a walk is long
  const std::lock_guard lock(mutex);
  const auto [found, fresh] = known.try_emplace({collective, algorithm, ranks});
  if (fresh) found->second = walked_price(collective, algorithm, ranks);
  return found->second;
}

double seconds(const RoutePrice& price, const Fabric& fabric, int64_t whole) {
  const double bytes = static_cast<double>(whole);
  return price.messages * fabric.latency + price.moved * bytes * fabric.seconds_per_byte +
         price.reduced * bytes * fabric.seconds_per_term;
}

Algorithm cheapest(Collective collective, int ranks, int64_t whole, const Fabric& fabric) {
  const auto choices = algorithms_of(collective);
  return *std::min_element(choices.begin(), choices.end(), [&](Algorithm a, Algorithm b) {
    return seconds(price_of(collective, a, ranks), fabric, whole) <
           seconds(price_of(collective, b, ranks), fabric, whole);
  });
}

Algorithm algorithm_for(Collective collective, int ranks, int64_t whole) {
  return cheapest(collective, ranks, whole, kUsualFabric);
}

}  // namespace adjoint
