#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace pulsora::bench {

/// Wall times of repeated runs, in microseconds.
struct Timing {
  double median = 0.0;
  double lowerQuartile = 0.0;
  double upperQuartile = 0.0;
  double fastest = 0.0;
  int runs = 0;
};

/// Runs `body` once to warm up and then until `seconds` have passed, between 5 and 200 times.
template <class Body>
Timing measure(double seconds, const Body &body) {
  using Clock = std::chrono::steady_clock;
  body();
  std::vector<double> times;
  const auto start = Clock::now();
  auto before = start;
  while (times.size() < 5 ||
         (times.size() < 200 && std::chrono::duration<double>(before - start).count() < seconds)) {
    before = Clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
  }
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double q) {
    return times[static_cast<size_t>(std::lround(q * static_cast<double>(times.size() - 1)))];
  };
  return {quantile(0.5), quantile(0.25), quantile(0.75), times.front(),
          static_cast<int>(times.size())};
}

}  // namespace pulsora::bench
