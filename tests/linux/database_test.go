package linux

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// database is a machine with SQLite on a file system on each of a store's volumes.
type database struct {
	*peer
	store     *store
	transport string
	committed []int            // transactions, by volume
	done      [][]journalTally // by volume and journal
}

// journals are SQLite's ways to survive power cuts. A rollback journal ends with the removal of a file, which only
// EXTRA makes durable.
var journals = []struct{ mode, pragmas, file string }{
	{"WAL", "journal_mode=WAL; PRAGMA synchronous=FULL", "db-wal"},
	{"DELETE", "journal_mode=DELETE; PRAGMA synchronous=EXTRA", "db-journal"},
}

// journalTally counts what a database went through with one of the journals.
type journalTally struct {
	cuts      int
	committed int // transactions that were reported
	left      int // cuts after which the journal was there, so that SQLite had something to recover
	beyond    int // cuts after which one more transaction was there than had been reported
}

// testDatabase cuts the power of a machine with a database and of the one that has its storage, simultaneously, while
// rows are being committed. Afterwards the file systems and the database are intact, with every row whose commit was
// reported.
func testDatabase(t *testing.T, version string, cuts int) {
	d := &database{store: newStore(t, version), committed: make([]int, len(storeVolumes)), done: make([][]journalTally, len(storeVolumes))}
	for k := range d.done {
		d.done[k] = make([]journalTally, len(journals))
	}
	for i := range cuts + 1 {
		d.transport = transports[i/len(journals)%len(transports)]
		d.boot(t, version, i == 0)
		for k := range storeVolumes {
			if i == 0 {
				d.create(t, k)
			} else {
				d.check(t, k, (i-1)%len(journals), i == cuts)
			}
		}
		if i < cuts {
			d.work(t, i%len(journals))
		}
		if t.Failed() {
			t.Fatalf("after %d power cuts", i)
		}
	}
	for k, v := range storeVolumes {
		for j, n := range d.done[k] {
			t.Logf("%s, %s: %d power cuts, %d transactions committed; the journal was there after %d, an unreported transaction after %d",
				v.name, journals[j].mode, n.cuts, n.committed, n.left, n.beyond)
		}
	}
	t.Attr("power-cuts", strconv.Itoa(cuts))
}

// boot starts both machines, and connects them.
func (d *database) boot(t *testing.T, version string, format bool) {
	t.Helper()
	d.store.boot(t)
	if format {
		d.store.format(t)
	}
	d.store.mount(t)
	d.store.serve(t, storeVolumes...)
	m, err := lab.Boot(t.Context(), lab.Config{Name: "database", Number: 7, Memory: 768, Image: images[version]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	d.peer = &peer{Machine: m}
	d.must(t, "modprobe -a rdma_rxe nvme-rdma nvme-tcp ext4 && rdma link add rxe0 type rxe netdev eth0")
	d.connectTo(t, d.transport, d.store.Addr.String(), testNQN)
}

// device returns the block device of the k-th volume. The kernel scans several namespaces concurrently, and numbers
// them as it finds them.
func (d *database) device(t *testing.T, k int) string {
	t.Helper()
	return strings.TrimSpace(d.must(t, fmt.Sprintf(`cd /sys/block; for i in $(seq 100); do for n in nvme*n*; do case $n in *c*n*) continue; esac
		[ "$(cat $n/nsid)" = %d ] && [ "$(cat $n/size)" != 0 ] && { echo /dev/$n; exit 0; }; done; sleep 0.1; done; exit 1`, k+1)))
}

// create makes a file system and a database on the k-th volume: a table of rows, and one with their number.
func (d *database) create(t *testing.T, k int) {
	t.Helper()
	dev := d.device(t, k)
	d.must(t, fmt.Sprintf("mkfs.ext4 -q -F %s && mkdir -p /mnt/%d && mount -t ext4 %s /mnt/%d", dev, k, dev, k))
	d.must(t, fmt.Sprintf("sqlite3 /mnt/%d/db 'CREATE TABLE t (n INTEGER PRIMARY KEY, x BLOB); CREATE TABLE c (rows); INSERT INTO c VALUES (0)'", k))
}

// work commits transactions to all databases with the j-th journal, and cuts the power at a random moment. Each
// transaction inserts a row and counts it, so half of one would be noticed.
func (d *database) work(t *testing.T, j int) {
	t.Helper()
	type result struct {
		k    int
		rows string
	}
	ended := make(chan result, len(storeVolumes))
	for k := range storeVolumes {
		go func() {
			// SQLite's shell prints the result before it reads on, so a row is reported after it was committed.
			rows, _ := d.try(t, fmt.Sprintf(`i=%d; { echo 'PRAGMA %s;'; while :; do i=$((i+1))
				echo "BEGIN; INSERT INTO t VALUES ($i, randomblob(500)); UPDATE c SET rows = rows + 1; COMMIT; SELECT 'row ' || $i || '.';"; done; } |
				sqlite3 -batch -bail /mnt/%d/db | tee /tmp/rows.%d`, d.committed[k], journals[j].pragmas, k, k))
			ended <- result{k, rows}
		}()
	}
	wanted := 20 + d.store.rnd.IntN(60)
	d.must(t, fmt.Sprintf(`for i in $(seq 1200); do [ $(cat /tmp/rows.* 2>/dev/null | grep -c row) -ge %d ] && exit 0; sleep 0.1; done
		cat /tmp/rows.* >&2; exit 1`, wanted))
	time.Sleep(rand.N(300 * time.Millisecond)) // any moment will do
	if d.store.rnd.IntN(2) == 0 {              // one of them is cut first
		d.Close()
		d.store.cut(t)
	} else {
		d.store.cut(t)
		d.Close()
	}
	for range storeVolumes {
		r := <-ended
		n := &d.done[r.k][j]
		n.cuts++
		if i := strings.LastIndex(r.rows, "."); i >= 0 {
			_, row, _ := strings.Cut(r.rows[strings.LastIndexByte(r.rows[:i], '\n')+1:i], "row ")
			last, err := strconv.Atoi(row)
			if err != nil {
				t.Fatalf("%s: %v in %q", storeVolumes[r.k].name, err, r.rows)
			}
			n.committed += last - d.committed[r.k]
			d.committed[r.k] = last
		}
	}
}

// check examines the k-th volume after a power cut during work with the j-th journal.
func (d *database) check(t *testing.T, k, j int, last bool) {
	t.Helper()
	name, dev, n := storeVolumes[k].name+", "+journals[j].mode, d.device(t, k), &d.done[k][j]
	journal := d.must(t, fmt.Sprintf("mkdir -p /mnt/%d && mount -t ext4 %s /mnt/%d && { stat -c %%s /mnt/%d/%s 2>/dev/null || echo 0; }",
		k, dev, k, k, journals[j].file))
	out := d.must(t, fmt.Sprintf("sqlite3 /mnt/%d/db 'PRAGMA integrity_check; SELECT count(*), ifnull(max(n), 0), (SELECT rows FROM c) FROM t'", k))
	verdict, counts, _ := strings.Cut(strings.TrimSpace(out), "\n")
	var rows, highest, counted int
	if _, err := fmt.Sscanf(counts, "%d|%d|%d", &rows, &highest, &counted); err != nil || verdict != "ok" {
		t.Fatalf("%s: the database says %q", name, out)
	}
	t.Logf("%s: %d rows reported, %d there; the journal had %s bytes", name, d.committed[k], rows, strings.TrimSpace(journal))
	// Of each writer one row may have been committed but not yet reported.
	if rows != highest || rows != counted || highest < d.committed[k] || highest > d.committed[k]+1 {
		t.Errorf("%s: %d rows up to number %d, %d counted, and %d were committed", name, rows, highest, counted, d.committed[k])
	}
	if strings.TrimSpace(journal) != "0" {
		n.left++
	}
	n.beyond += highest - d.committed[k]
	d.committed[k] = highest
	if last {
		d.must(t, fmt.Sprintf("umount /mnt/%d && e2fsck -fn %s", k, dev))
	}
}
