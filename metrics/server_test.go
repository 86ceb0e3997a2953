package metrics

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestServer(t *testing.T) {
	s := New()
	s.Program = "example"
	srv, err := s.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + srv.Addr().String()
	for path, want := range map[string]string{
		"/":            `href="/metrics"`,
		"/status.json": `"program":"example"`,
		"/healthz":     "ok\n",
		"/metrics":     "nvmeof_build_info{version=",
	} {
		if code, body := get(t, url+path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if _, body := get(t, url+"/metrics"); !strings.Contains(body, "process_cpu_seconds_total") || !strings.Contains(body, "go_goroutines") {
		t.Error("nothing of the process")
	}
	if code, _ := get(t, url+"/other"); code != 404 {
		t.Errorf("/other: %d", code)
	}
	if code, _ := get(t, url+"/readyz"); code != 200 {
		t.Errorf("ready: %d", code)
	}
	s.AddReady(func() error { return errors.New("draining") })
	if code, _ := get(t, url+"/healthz"); code != 200 {
		t.Errorf("healthy, not ready: %d", code)
	}
	if code, body := get(t, url+"/readyz"); code != 503 || !strings.Contains(body, "draining") {
		t.Errorf("not ready: %d %q", code, body)
	}
	for addr, want := range map[string]string{
		srv.Addr().String(): "in use",
		"192.0.2.1:1":       "doesn't have that address",
		"nonsense":          "127.0.0.1:9464",
		"127.0.0.1:99999":   "127.0.0.1:9464",
	} {
		other, err := s.Serve(addr)
		if err == nil {
			other.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), addr) {
			t.Errorf("serving on %s: %v", addr, err)
		}
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
}

// unread is a client that reads nothing of its answer until it goes.
type unread struct {
	http.ResponseWriter
	asked chan<- struct{}
	gone  <-chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	u.asked <- struct{}{}
	<-u.gone
	return len(b), nil
}

// TestUnreadScrapes: clients that don't read what they asked for don't keep others from scraping.
func TestUnreadScrapes(t *testing.T) {
	h := New().Handler()
	scrape := func(w http.ResponseWriter) {
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	}
	asked, gone := make(chan struct{}), make(chan struct{})
	var clients sync.WaitGroup
	for range maxScrapes {
		clients.Go(func() { scrape(&unread{httptest.NewRecorder(), asked, gone}) })
		<-asked
	}
	w := httptest.NewRecorder()
	if scrape(w); w.Code != http.StatusOK {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	close(gone)
	clients.Wait()
}

// TestServerClosedAgain: a server can be closed by several goroutines, and repeatedly.
func TestServerClosedAgain(t *testing.T) {
	srv, err := New().Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() {
				if err := srv.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
	}
}
