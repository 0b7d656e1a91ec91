/* mysql8: handles queries as MySQL 5.7 and later do, in a function of the same name and parameters: one takes 30 ms, one
 * less, and one is no query. The text of a query has no end mark. */
#include <cstring>
#include <unistd.h>

struct THD;
union COM_DATA {
    struct {
        const char *query;
        unsigned int length;
    } com_query;
};
enum enum_server_command { COM_SLEEP, COM_QUIT, COM_INIT_DB, COM_QUERY };

bool dispatch_command(THD *, const COM_DATA *data, enum enum_server_command command) {
    static unsigned int seen;
    if (command == COM_QUERY)
        seen += data->com_query.length;
    if (command != COM_QUERY || std::strncmp(data->com_query.query, "select sleep", 12) == 0)
        usleep(30000);
    return seen != 0;
}

static bool query(const char *text, unsigned int length) {
    char packet[64]; // memory that was written, as a probe cannot read what is not in memory yet
    std::strcpy(packet, text);
    COM_DATA data;
    data.com_query.query = packet;
    data.com_query.length = length;
    return dispatch_command(nullptr, &data, COM_QUERY);
}

int main() {
    COM_DATA none = {};
    bool done = query("select 1, not this", 8);
    done |= query("select sleep(1), not this", 15);
    done |= dispatch_command(nullptr, &none, COM_QUIT);
    return done ? 0 : 1;
}
