// Batch normalisation of the columns of a matrix, the sum with another matrix and the ReLU as one function, which
// reads and writes the memory about half as often as the three. Matrices are (rows, channels), row after row;
// parameters (weight, bias) and statistics (mean, 1 / deviation) are fp32, in gradients and statistics one behind the
// other. What is below `lowest` becomes it: 0 for a ReLU, minus infinity for none.
//
// A thread takes some channels and all of their rows: few, so that much of them is still in its cache at the second
// reading. No thread waits for another's sums, and the result does not depend on the number of threads.

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && !defined(__FMA__)
#error "slower than PyTorch on a processor without fused multiply-add"
#endif

namespace {

struct BFloat16 {
    uint16_t bits;
};

inline float widen(float value) { return value; }

inline float widen(BFloat16 value) {
    const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

inline void narrow(float value, float& to) { to = value; }

// To the nearest, ties to even; not-a-number stays one
inline void narrow(float value, BFloat16& to) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    to.bits = static_cast<uint16_t>(value != value ? 0x7fc0u : rounded);
}

inline float zero_if(bool zero, float value) { return zero ? 0 : value; }

inline BFloat16 zero_if(bool zero, BFloat16 value) {
    value.bits = zero ? 0 : value.bits;  // not the struct in whole, for which GCC 12 finds no vectors
    return value;
}

constexpr long kWidest = 128;  // channels of a part
constexpr long kStep = 32;     // parts begin at multiples of it, so that threads share few lines of the cache
constexpr long kAhead = 8;     // rows
constexpr long kCarry = 64;    // rows that are summed in fp32

template <bool kWrite, typename T>
inline void prefetch(const T* row, long channels) {
    const char* bytes = reinterpret_cast<const char*>(row);
    for (long i = 0; i < channels * static_cast<long>(sizeof(T)); i += 64) {
        __builtin_prefetch(bytes + i, kWrite, 2);
    }
}

long rounded_up(long value, long step) { return (value + step - 1) / step * step; }

// Calls part(first channel, number of channels) for parts that make up all channels, as even as they can be.
template <typename Part>
void in_parts(long channels, long threads, Part part) {
    const long parts = rounded_up((channels + kWidest - 1) / kWidest, threads);
    const long width = rounded_up((channels + parts - 1) / parts, kStep);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long first = 0; first < channels; first += width) {
        part(first, channels - first < width ? channels - first : width);
    }
}

// Rows joined with the row before them: of each sentence of `words` rows every `stride`-th one, its predecessor on its
// left; the first has zeros there. Stride 0: rows as they are.
struct Joined {
    long words, stride, channels;

    long places() const { return (words + stride - 1) / stride; }

    // Where a row lies as the later of two, and as the earlier; null where it is in none.
    template <typename T>
    T* later(T* joined, long row) const {
        const long word = row % words;
        return word % stride ? nullptr : joined + (row / words * places() + word / stride) * 2 * channels + channels;
    }

    template <typename T>
    T* earlier(T* joined, long row) const {
        const long next = row % words + 1;
        if (next % stride || next >= words) return nullptr;
        return joined + (row / words * places() + next / stride) * 2 * channels;
    }

    template <typename T>
    void put(const T* values, long row, long first, long width, T* joined) const {
        T *right = later(joined, row), *left = earlier(joined, row);
        if (right) std::memcpy(right + first, values, width * sizeof(T));
        if (left) std::memcpy(left + first, values, width * sizeof(T));
        if (row % words == 0) std::memset(later(joined, row) - channels + first, 0, width * sizeof(T));
    }

    // The gradient of a row, in `sum` where it is not there already.
    template <typename T>
    const T* take(const T* joined, long row, long first, long width, T* sum) const {
        const T *right = later(joined, row), *left = earlier(joined, row);
        if (right && left) {
            for (long c = 0; c < width; c++) narrow(widen(right[first + c]) + widen(left[first + c]), sum[c]);
            return sum;
        }
        if (right || left) return (right ? right : left) + first;
        std::memset(sum, 0, width * sizeof(T));
        return sum;
    }
};

// Two sums for each of some channels: in fp32 over a few rows, and of these sums in double precision.
struct Sums {
    double totals[2][kWidest] = {};
    float recent[2][kWidest] = {};

    void carry(long width) {
        for (int which = 0; which < 2; which++) {
            for (long c = 0; c < width; c++) {
                totals[which][c] += recent[which][c];
                recent[which][c] = 0;
            }
        }
    }
};

template <typename T>
void forward(long threads, const T* x, const T* plus, long rows, long words, long stride, long channels,
             const float* weight, const float* bias, float eps, float momentum, float lowest, float* running_mean,
             float* running_var, float* statistics, T* out) {
    const Joined joined{words, stride, channels};
    float *mean = statistics, *inverse = statistics + channels;
    in_parts(channels, threads, [=](long first, long width) {
        T values[kWidest];
        float origin[kWidest] = {}, scale[kWidest];
        const float *centre = mean + first, *offset = bias + first;
        // differences to something near the mean keep the variance of values far from zero exact
        const long some = rows < kCarry ? rows : kCarry;
        for (long r = 0; r < some; r++) {
            const T* row = x + r * channels + first;
            for (long c = 0; c < width; c++) origin[c] += widen(row[c]) / some;
        }
        Sums sums;
        for (long r = 0; r < rows; r++) {
            const T* row = x + r * channels + first;
            prefetch<false>(row + kAhead * channels, width);
            for (long c = 0; c < width; c++) {
                const float apart = widen(row[c]) - origin[c];
                sums.recent[0][c] += apart;
                sums.recent[1][c] += apart * apart;
            }
            if ((r + 1) % kCarry == 0) sums.carry(width);
        }
        sums.carry(width);
        for (long c = 0; c < width; c++) {
            const long k = first + c;
            const double apart = sums.totals[0][c] / rows;
            const double spread = sums.totals[1][c] / rows - apart * apart;
            const double variance = spread < 0 ? 0 : spread;  // not-a-number stays one
            mean[k] = static_cast<float>(origin[c] + apart);
            inverse[k] = static_cast<float>(1 / std::sqrt(variance + eps));
            scale[c] = weight[k] * inverse[k];
            running_mean[k] += momentum * (mean[k] - running_mean[k]);
            running_var[k] += momentum * (static_cast<float>(variance * rows / (rows - 1)) - running_var[k]);
        }
        for (long r = 0; r < rows; r++) {
            const T* row = x + r * channels + first;
            T* to = stride ? values : out + r * channels + first;
            if (!stride) prefetch<true>(to + kAhead * channels, width);
            if (plus) {
                const T* other = plus + r * channels + first;
                prefetch<false>(other + kAhead * channels, width);
                for (long c = 0; c < width; c++) {
                    const float y = std::fma(widen(row[c]) - centre[c], scale[c], offset[c]) + widen(other[c]);
                    narrow(y < lowest ? lowest : y, to[c]);
                }
            } else {
                for (long c = 0; c < width; c++) {
                    const float y = std::fma(widen(row[c]) - centre[c], scale[c], offset[c]);
                    narrow(y < lowest ? lowest : y, to[c]);
                }
            }
            if (stride) joined.put(values, r, first, width, out);
        }
    });
}

// Where nothing was added, `out` and `of_plus` are null: what the ReLU let through follows from x alone.
template <typename T>
void backward(long threads, const T* gradient, const T* x, const T* out, long rows, long words, long stride,
              long channels, const float* weight, const float* bias, float lowest, const float* statistics, T* of_x,
              T* of_plus, float* of_parameters) {
    const Joined joined{words, stride, channels};
    const float *mean = statistics, *inverse = statistics + channels;
    float *of_weight = of_parameters, *of_bias = of_parameters + channels;
    in_parts(channels, threads, [=](long first, long width) {
        T values[kWidest];
        float scale[kWidest], by_apart[kWidest], constant[kWidest];
        const float *centre = mean + first, *offset = bias + first;
        for (long c = 0; c < width; c++) scale[c] = weight[first + c] * inverse[first + c];
        Sums sums;
        for (long r = 0; r < rows; r++) {
            const long start = r * channels + first, ahead = start + kAhead * channels;
            const T* g = stride ? joined.take(gradient, r, first, width, values) : gradient + start;
            const T* row = x + start;
            if (!stride) prefetch<false>(gradient + ahead, width);
            prefetch<false>(x + ahead, width);
            if (of_plus) {
                const T* y = out + start;
                T* to = of_plus + start;
                prefetch<false>(out + ahead, width);
                prefetch<true>(of_plus + ahead, width);
                for (long c = 0; c < width; c++) {
                    to[c] = zero_if(widen(y[c]) <= lowest, g[c]);
                    const float passed = widen(to[c]);
                    sums.recent[0][c] += passed;
                    sums.recent[1][c] += passed * (widen(row[c]) - centre[c]);
                }
            } else {
                for (long c = 0; c < width; c++) {
                    const float apart = widen(row[c]) - centre[c];
                    const float passed = std::fma(apart, scale[c], offset[c]) <= lowest ? 0 : widen(g[c]);
                    sums.recent[0][c] += passed;
                    sums.recent[1][c] += passed * apart;
                }
            }
            if ((r + 1) % kCarry == 0) sums.carry(width);
        }
        sums.carry(width);
        for (long c = 0; c < width; c++) {
            const long k = first + c;
            const double product = sums.totals[1][c] * inverse[k];
            of_weight[k] = static_cast<float>(product);
            of_bias[k] = static_cast<float>(sums.totals[0][c]);
            by_apart[c] = static_cast<float>(-product * inverse[k] * scale[c] / rows);
            constant[c] = static_cast<float>(-sums.totals[0][c] * scale[c] / rows);
        }
        for (long r = 0; r < rows; r++) {
            const long start = r * channels + first;
            const T* row = x + start;
            T* to = of_x + start;
            prefetch<true>(to + kAhead * channels, width);
            if (of_plus) {
                const T* g = of_plus + start;
                for (long c = 0; c < width; c++) {
                    const float apart = widen(row[c]) - centre[c];
                    narrow(std::fma(widen(g[c]), scale[c], std::fma(apart, by_apart[c], constant[c])), to[c]);
                }
            } else {
                const T* g = stride ? joined.take(gradient, r, first, width, values) : gradient + start;
                for (long c = 0; c < width; c++) {
                    const float apart = widen(row[c]) - centre[c];
                    const float passed = std::fma(apart, scale[c], offset[c]) <= lowest ? 0 : widen(g[c]);
                    narrow(std::fma(passed, scale[c], std::fma(apart, by_apart[c], constant[c])), to[c]);
                }
            }
        }
    });
}

// Filters of two taps, which lie in memory as pairs, as a matrix with the earlier tap on the left of each row.
template <typename T>
void to_matrix(long threads, long outputs, long inputs, const float* filters, T* matrix) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < outputs; row++) {
        const float* pairs = filters + row * 2 * inputs;
        T *earlier = matrix + row * 2 * inputs, *later = earlier + inputs;
        for (long i = 0; i < inputs; i++) {
            narrow(pairs[2 * i], earlier[i]);
            narrow(pairs[2 * i + 1], later[i]);
        }
    }
}

template <typename T>
void from_matrix(long threads, long outputs, long inputs, const T* matrix, float* filters) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < outputs; row++) {
        const T *earlier = matrix + row * 2 * inputs, *later = earlier + inputs;
        float* pairs = filters + row * 2 * inputs;
        for (long i = 0; i < inputs; i++) {
            pairs[2 * i] = widen(earlier[i]);
            pairs[2 * i + 1] = widen(later[i]);
        }
    }
}

}  // namespace

#define LIMNER_EXPORT(T, NAME)                                                                                        \
    extern "C" void forward_##NAME(long threads, const T* x, const T* plus, long rows, long words, long stride,       \
                                   long channels, const float* weight, const float* bias, float eps, float momentum,  \
                                   float lowest, float* running_mean, float* running_var, float* statistics,          \
                                   T* out) {                                                                          \
        forward(threads, x, plus, rows, words, stride, channels, weight, bias, eps, momentum, lowest, running_mean,   \
                running_var, statistics, out);                                                                        \
    }                                                                                                                 \
    extern "C" void backward_##NAME(long threads, const T* gradient, const T* x, const T* out, long rows, long words, \
                                    long stride, long channels, const float* weight, const float* bias, float lowest, \
                                    const float* statistics, T* of_x, T* of_plus, float* of_parameters) {             \
        backward(threads, gradient, x, out, rows, words, stride, channels, weight, bias, lowest, statistics, of_x,    \
                 of_plus, of_parameters);                                                                             \
    }                                                                                                                 \
    extern "C" void to_matrix_##NAME(long threads, long outputs, long inputs, const float* filters, T* matrix) {      \
        to_matrix(threads, outputs, inputs, filters, matrix);                                                         \
    }                                                                                                                 \
    extern "C" void from_matrix_##NAME(long threads, long outputs, long inputs, const T* matrix, float* filters) {    \
        from_matrix(threads, outputs, inputs, matrix, filters);                                                       \
    }

LIMNER_EXPORT(float, float32)
LIMNER_EXPORT(BFloat16, bfloat16)
