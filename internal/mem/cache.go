package mem

import (
	"math/bits"
	"sync"
)

const (
	cachedOrders = 12      // 512 bytes to 1 MiB
	cacheDepth   = 256     // blocks of one size
	cacheBytes   = 4 << 20 // of one size
)

// cache is a stack of freed blocks of one size. It is last in, first out, as what was just used
// is still in the processor's cache.
type cache struct {
	mu    sync.Mutex
	n     int
	limit int
	stack [cacheDepth]block
}

// cacheLimit returns how many blocks of an order to keep.
func cacheLimit(order int) int { return min(cacheDepth, cacheBytes/(unit<<order)) }

// cachedOrder reports whether blocks of that size are cached, and in which cache.
func cachedOrder(units uint32) (order int, ok bool) {
	order = bits.TrailingZeros32(units)
	return order, order < cachedOrders && units == 1<<order
}

func (c *cache) pop() (block, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return block{}, false
	}
	c.n--
	return c.stack[c.n], true
}

func (c *cache) push(b block) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n >= c.limit {
		return false
	}
	c.stack[c.n] = b
	c.n++
	return true
}

// drain empties the cache by calling release for each block.
func (c *cache) drain(release func(block)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n > 0 {
		c.n--
		release(c.stack[c.n])
		c.stack[c.n] = block{}
	}
}

// close makes the cache accept nothing any more.
func (c *cache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = 0
}
