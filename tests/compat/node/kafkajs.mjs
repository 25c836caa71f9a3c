// Produces and consumes with kafkajs. Arguments: bootstrap server, client id, topic, group, number of records.
import { Kafka, logLevel } from 'kafkajs'

const [server, clientId, topic, groupId, count] = process.argv.slice(2)
const kafka = new Kafka({ clientId, brokers: [server], logLevel: logLevel.ERROR })

const admin = kafka.admin()
await admin.connect()
await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] })
await admin.disconnect()

const producer = kafka.producer()
await producer.connect()
const messages = Array.from({ length: Number(count) }, (_, i) => ({ key: `k${i}`, value: `v${i}`, headers: { h: `h${i}` } }))
await producer.send({ topic, messages })
await producer.disconnect()

const consumer = kafka.consumer({ groupId })
await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
const got = []
await new Promise((done) => {
  consumer.run({
    eachMessage: async ({ partition, message: { offset, key, value, headers } }) => {
      got.push([partition, Number(offset), key.toString(), value.toString(), headers.h.toString()])
      if (got.length === messages.length) done()
    }
  })
})
await consumer.disconnect()
console.log(JSON.stringify(got))
