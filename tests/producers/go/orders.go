// Writes the orders of orders.py with one of Go's clients: go run . CLIENT BOOTSTRAP TOPIC COUNT
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"
)

var firstPlacedAt = time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)

const recordTimestamp = 1_700_000_000_000

type record struct {
	key, value []byte // value: nil is a tombstone
	trace      string
	timestamp  time.Time
}

type event struct {
	Order order `json:"order"`
}

type order struct {
	ID       string     `json:"id"`
	PlacedAt *time.Time `json:"placed_at"`
	Customer customer   `json:"customer"`
	Items    any        `json:"items"`
	Rate     float64    `json:"rate"`
	IsNew    bool       `json:"is_new"`
}

type customer struct {
	Name string `json:"name"`
	Age  any    `json:"age,omitempty"`
}

type item struct {
	SKU      string  `json:"sku"`
	Price    float64 `json:"price"`
	Quantity int     `json:"quantity"`
}

// The programs differ in their client; each has a function that sends the records with a codec, and says when all are stored.
var clients = map[string]func(bootstrap, topic, codec string, records []record) error{
	"kafka-go": sendWithKafkaGo,
	"franz-go": sendWithFranzGo,
}

func main() {
	send, bootstrap, topic := clients[os.Args[1]], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	codecs := []string{"gzip", "snappy", "lz4", "zstd"}
	for part, codec := range codecs {
		var records []record
		for number := part * count / len(codecs); number < (part+1)*count/len(codecs); number++ {
			records = append(records, goodRecord(number))
			if number == 10 {
				records = append(records, badRecords()...)
			}
		}
		check(send(bootstrap, topic, codec, records))
	}
}

func goodRecord(number int) record {
	return record{
		key:       fmt.Appendf(nil, "c-%d", number%7),
		value:     encoded(makeOrder(fmt.Sprintf("o-%d", number), number)),
		trace:     fmt.Sprintf("00-%032x-00000000000000ff-01", number),
		timestamp: time.UnixMilli(recordTimestamp + int64(number)),
	}
}

func badRecords() []record {
	oldCustomer, oneItem, noItems := makeOrder("bad", 1), makeOrder("bad", 1), makeOrder("bad", 1)
	oldCustomer.Customer.Age = "old"
	oneItem.Items = item{}
	noItems.Items = []item{}
	values := [][]byte{encoded(oldCustomer), encoded(oneItem), encoded(noItems), []byte(`{"order": {`), nil}
	var records []record
	for _, value := range values {
		records = append(records, record{[]byte("c-0"), value, "bad", time.UnixMilli(recordTimestamp)})
	}
	return records
}

func makeOrder(id string, number int) order {
	made := order{ID: id, Customer: customer{Name: "Zoë <&> 鈴木 🛒"}, Rate: float64(number) * 1e-7, IsNew: number%2 == 0}
	if number > 0 {
		placedAt := firstPlacedAt.Add(time.Duration(number) * 1500 * time.Millisecond)
		made.PlacedAt = &placedAt
	}
	if number%3 == 2 {
		made.Customer.Age = 20 + number
	}
	var items []item
	for index := 0; index <= number%3; index++ {
		items = append(items, item{fmt.Sprintf("s-%d", index), float64(number) + 0.25*float64(index), index + 1})
	}
	made.Items = items
	return made
}

func encoded(order order) []byte {
	value, err := json.Marshal(event{order})
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
