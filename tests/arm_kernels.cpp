// The core's kernels for ARM behind one function; see arm.py.
#include "kernels/codes.hpp"

using namespace l2route;

extern "C" void score(int kernel, const void* query, const void* rows, std::size_t width,
                      const VertexId* ids, std::size_t n, float* scores) {
  const CodeQuery codes{static_cast<const std::int8_t*>(query), 1.0f, 0.0f};
  switch (kernel) {
    case 0:
      return float_kernel<ScoreKind::l2, float>("neon")(query, rows, width, ids, n, scores);
    case 1:
      return float_kernel<ScoreKind::inner_product, float>("neon")(query, rows, width, ids, n,
                                                                   scores);
    case 2:
      return float_kernel<ScoreKind::l2, Half>("neon")(query, rows, width, ids, n, scores);
    case 3:
      return float_kernel<ScoreKind::inner_product, Half>("neon")(query, rows, width, ids, n,
                                                                  scores);
    case 4:
      return code_kernel<8>("neon")(&codes, rows, width, ids, n, scores);
    case 5:
      return code_kernel<4>("neon")(&codes, rows, width, ids, n, scores);
    default:
      return code_kernel<2>("neon")(&codes, rows, width, ids, n, scores);
  }
}
