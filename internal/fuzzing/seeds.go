package fuzzing

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tellEvery is how often Soak says that it goes on.
const tellEvery = 10 * time.Second

// Number returns the number in an environment variable, or the one given if the variable is empty.
func Number(t testing.TB, env string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatalf("%s=%q: want a number", env, text)
	}
	return n
}

// Seeded reports whether the environment chooses the seeds of a random test, and then runs them: the single one that is
// in the variable only; or one after another, from a random one on and until one fails, for as long ("10m") or as many
// ("10000x") as the variable soak says.
func Seeded(t testing.TB, only, soak string, run func(seed uint64)) bool {
	t.Helper()
	if os.Getenv(only) != "" {
		run(Number(t, only, 0))
		return true
	}
	text := os.Getenv(soak)
	if text == "" {
		return false
	}
	limit, most := time.Duration(math.MaxInt64), uint64(math.MaxUint64)
	var err error
	if count, ok := strings.CutSuffix(text, "x"); ok {
		most, err = strconv.ParseUint(count, 10, 64)
	} else {
		limit, err = time.ParseDuration(text)
	}
	if err != nil {
		t.Fatalf("%s=%q: want a time, as 10m, or a number of seeds, as 10000x", soak, text)
	}
	began, told := time.Now(), time.Now()
	first, n := rand.Uint64()>>16, uint64(0)
	for ; n < most && time.Since(began) < limit && !t.Failed(); n++ {
		run(first + n)
		if time.Since(told) >= tellEvery {
			told = time.Now()
			t.Logf("%d seeds in %v", n+1, time.Since(began).Round(time.Second))
		}
	}
	t.Logf("%d seeds, from %d on", n, first)
	return true
}
